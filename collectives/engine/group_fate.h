// Whether the operations of one communicator go on when ranks of the job fail.
#pragma once

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

struct GroupFate {
  GroupFate(std::shared_ptr<const std::vector<int>> members, bool alone)
      : job_ranks(std::move(members)), fails_alone(alone) {}

  std::shared_ptr<const std::vector<int>> job_ranks;  // its members
  bool fails_alone;                                   // as GroupOptions has it
  std::atomic<bool> failed{false};
  Status failure = {};  // why, then; of the engine's lock
};

}  // namespace gradwire
