// A queue of work on a device.
#pragma once

#include "gradwire/tensor.h"

namespace gradwire {

// A borrowed CUDA stream. The default (host, null) means: no stream, the work is complete when the
// call returns. The caller owns the stream and keeps it until the work on it has ended.
struct Stream {
  Device device;           // where the stream runs; the host by default
  void* native = nullptr;  // cudaStream_t; null on the host, or CUDA's default stream
};

}  // namespace gradwire
