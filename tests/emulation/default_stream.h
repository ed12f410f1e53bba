// The default streams of the emulated devices, for code without CUDA's headers.
#pragma once

#include <functional>

namespace gradwire::emulation {

// run_on() (emulated_device.h) the default stream of a device, whatever device is the thread's.
void run_on_default_of(int device, std::function<void()> work);

}  // namespace gradwire::emulation
