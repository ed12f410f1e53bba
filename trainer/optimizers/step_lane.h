// A thread that makes an optimizer's step while the step's gradients are still coming in.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>

#include "gradwire/status.h"

namespace gradwire {

// Gradients become final from the last parameter to the first, so what may be stepped is always
// what lies behind some element: the lane works down to it, chunk by chunk, and sleeps where less
// than a chunk is there. All functions are called from one thread.
class StepLane {
 public:
  // Elements [first, first + count), on the lane's thread; an error ends the step.
  using Part = std::function<Status(std::size_t first, std::size_t count)>;

  StepLane() : thread_([this] { work(); }) {}
  StepLane(const StepLane&) = delete;
  StepLane& operator=(const StepLane&) = delete;
  ~StepLane();

  // Of a step over `elems` elements, nothing of which may be stepped yet. The last one has been
  // finished or stopped. chunk: 1 or more.
  void begin(std::size_t elems, std::size_t chunk, Part part);
  // Elements from `first` on may be stepped; what was said before holds.
  void release(std::size_t first);
  // All may be; returns when all are, with the first error of a part.
  Status finish();
  // What has not begun never does; on return the lane touches nothing.
  void stop();

 private:
  void work();
  bool may_step() const;

  std::mutex mutex_;
  std::condition_variable released_;
  std::condition_variable rests_;
  Part part_;
  std::size_t chunk_ = 1;
  std::size_t stepped_ = 0;   // elements from here on are
  std::size_t may_from_ = 0;  // elements from here on may be
  bool busy_ = false;         // within part_
  bool ending_ = false;
  Status status_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace gradwire
