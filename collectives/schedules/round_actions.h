// What is to be done with a round once its messages are there (schedule.h), for the executor and
// the checker alike.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gradwire/schedule.h"

namespace gradwire {

inline bool is_reduction(const Step& step) {
  return step.op == Step::Op::kRecvReduce || step.op == Step::Op::kReduce;
}

// The reductions of messages, then the local steps, in order.
inline std::vector<const Step*> steps_after_messages(const Round& round) {
  std::vector<const Step*> steps;
  for (const Step& step : round) {
    if (step.op == Step::Op::kRecvReduce) steps.push_back(&step);
  }
  for (const Step& step : round) {
    if (step.peer < 0) steps.push_back(&step);
  }
  return steps;
}

// How many of `steps`, at least one, are a single action: a reduction with all that follows into
// the same place and its finish, or one step of another kind.
inline std::size_t action_length(std::span<const Step* const> steps) {
  std::size_t n = 1;
  if (!is_reduction(*steps[0])) return n;
  while (n < steps.size() && is_reduction(*steps[n]) && steps[n]->to == steps[0]->to) ++n;
  const bool finished =
      n < steps.size() && steps[n]->op == Step::Op::kFinish && steps[n]->to == steps[0]->to;
  return finished ? n + 1 : n;
}

}  // namespace gradwire
