// StreamGate on CUDA: declared in every build, defined where kHaveCuda holds.
#pragma once

#include <memory>

#include "device/stream_gate.h"

namespace gradwire::cuda {

// As StreamGate::close(), whose other errors are CUDA's here.
Result<std::unique_ptr<StreamGate>> close_gate(const Stream& stream);

}  // namespace gradwire::cuda
