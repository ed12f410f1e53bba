// A stream of a device that waits for the host, so that the host need not wait for itself.
#pragma once

#include <memory>

#include "gradwire/status.h"
#include "gradwire/stream.h"

namespace gradwire {

// Closed from its making until open(), by any thread, or its end. Work that the stream was given
// before runs meanwhile; what it is given later waits. Who closes one sees to it that it is opened.
class StreamGate {
 public:
  // kUnsupported, and nothing is enqueued, for a stream of the host, for CUDA's default stream, on
  // a device or a driver whose streams cannot wait for a word of memory, and where the stream is
  // captured as a CUDA graph.
  static Result<std::unique_ptr<StreamGate>> close(const Stream& stream);
  virtual ~StreamGate() = default;
  virtual void open() = 0;
};

}  // namespace gradwire
