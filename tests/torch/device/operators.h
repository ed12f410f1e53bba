// PyTorch's operators on the emulated devices are registered when the module is loaded.
#pragma once

namespace gradwire::emulated_torch {

// Tells PyTorch of the devices, once.
void register_hooks();

}  // namespace gradwire::emulated_torch
