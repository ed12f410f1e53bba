// CopyLane on CUDA: declared in every build, defined where kHaveCuda holds.
#pragma once

#include <memory>

#include "device/copy_lane.h"

namespace gradwire::cuda {

// As CopyLane::create(), whose errors are CUDA's here.
Result<std::unique_ptr<CopyLane>> make_lane(Device device);

}  // namespace gradwire::cuda
