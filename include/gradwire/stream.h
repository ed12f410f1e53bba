// A queue of device work.
#pragma once

#include "gradwire/tensor.h"

namespace gradwire {

// `native` is a cudaStream_t; null on the host, where calls have run when they return.
struct Stream {
  Device device;
  void* native = nullptr;
};

}  // namespace gradwire
