// Operations that may end without the engine, in their caller's thread: a message through the
// memory of a host takes less time than the engine needs to begin an operation.
//
// What has not ended after a short wait, or a millisecond on its own, is given to the engine as an
// operation like any other: from then on that drives it, and knows its deadline and its failures.
#pragma once

#include <optional>

#include "gradwire/tensor.h"

namespace gradwire {

class ProgressEngine;
class WorkState;

// Any thread.
class QuickWork {
 public:
  virtual ~QuickWork() = default;

  // Does what can be done now.
  virtual void look() = 0;
  // Looks for some microseconds, and longer while something moves. True when `work` has ended.
  // False: the engine has it now, or `until` has come.
  virtual bool wait_briefly(const WorkState& work, const std::optional<Deadline>& until) = 0;
  // The engine asks from time to time, after ProgressEngine::attend(): gives it what was open the
  // last time, too. False when nothing is open; then it does not ask again.
  virtual bool hand_over(ProgressEngine& engine) = 0;
};

}  // namespace gradwire
