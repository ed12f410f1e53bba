// Streams and events of CUDA, owned.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>

#include "gradwire/status.h"
#include "gradwire/stream.h"

namespace gradwire::cuda {

// A stream of `device`, which waits for CUDA's default stream and is waited for by it. Destroyed in
// order: work that is enqueued still runs.
class OwnedStream {
 public:
  static Result<OwnedStream> create(Device device);
  // One that neither waits for CUDA's default stream nor is waited for by it.
  static Result<OwnedStream> create_apart(Device device);
  // Lent: valid while this lives.
  Stream stream() const { return {device_, stream_.get()}; }

 private:
  struct Destroy {
    void operator()(cudaStream_t stream) const noexcept;
  };
  using Handle = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Destroy>;
  static Result<OwnedStream> create(Device device, unsigned flags);
  OwnedStream(Device device, cudaStream_t stream) : device_(device), stream_(stream) {}
  Device device_;
  Handle stream_;
};

// Whether CUDA's default stream waits for it, or it is that stream: all but those that are made
// with cudaStreamNonBlocking. kInternal where it is no stream.
Result<bool> goes_with_default(const Stream& stream);

// A point in a stream's work.
class Event {
 public:
  static Result<Event> create(Device device);
  // One whose time is known.
  static Result<Event> create_timed(Device device);
  // The point after all that is enqueued on `stream` now.
  Status record(const Stream& stream);
  // Work that is enqueued on `stream` from now on runs after the recorded point; the host does not
  // wait.
  Status before(const Stream& stream) const;
  // Whether the point was passed. An error of the work before it is this call's.
  Result<bool> passed() const;
  // From the point of `since` to this one; both are timed and have been passed.
  Result<double> milliseconds_since(const Event& since) const;

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const noexcept;
  };
  using Handle = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy>;
  static Result<Event> create(Device device, unsigned flags);
  explicit Event(cudaEvent_t event) : event_(event) {}
  Handle event_;
};

}  // namespace gradwire::cuda
