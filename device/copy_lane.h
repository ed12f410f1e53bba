// How the host follows what a device does, and has it copy beside its other work.
#pragma once

#include <memory>

#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"

namespace gradwire {

// A point in a device's work. Used by one thread at a time.
class DevicePoint {
 public:
  virtual ~DevicePoint() = default;
  // From now on the point after all that is enqueued on `stream` now. kUnsupported where that is
  // captured as a CUDA graph.
  virtual Status record(const Stream& stream) = 0;
  // Work that is enqueued on `stream` from now on runs after it; the host does not wait.
  virtual Status before(const Stream& stream) const = 0;
  // Whether it was passed; true of one that was never recorded. An error of the work before it is
  // this call's.
  virtual Result<bool> passed() const = 0;
  // Nobody waits for it any more, nor uses it: pinned memory that is freed from now on lives on
  // until it is passed.
  virtual void give_up() = 0;
};

// Sleeps until the point is passed: true; or until `until`: false. Errors as passed().
Result<bool> await(const DevicePoint& point, Deadline until);

// Two streams of a device of their own, one for each direction, since devices copy both ways at
// once. They wait for no other stream, CUDA's default stream included, and none waits for them: who
// orders work between them and others goes by points. Any thread.
class CopyLane {
 public:
  // kUnsupported in a build without CUDA, or without such a device.
  static Result<std::unique_ptr<CopyLane>> create(Device device);
  virtual ~CopyLane() = default;
  // Both lent: valid while the lane lives.
  virtual Stream to_host() const = 0;
  virtual Stream to_device() const = 0;
  virtual Result<std::unique_ptr<DevicePoint>> make_point() const = 0;
  // Waits until all that to_device() has been given has run. kTimedOut, naming the device, where it
  // has not within so many seconds.
  Status finish(double seconds) const;
};

}  // namespace gradwire
