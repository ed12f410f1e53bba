// Ranks that hold the same parameters: how they become equal, and stay so.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "adapters/trainer/distributed_strategy.h"
#include "gradwire/communicator.h"
#include "gradwire/registry.h"

namespace gradwire {

// What two aggregators of one rank did together.
AggregateStats operator+(AggregateStats a, const AggregateStats& b);

// Bytes that a rank of so many sends in a ring all-reduce of so many fp32 elements: what runs are
// compared with, whatever they send and how often.
std::uint64_t dense_ring_bytes(std::int64_t elems, int rank, int ranks);

// Collective calls, from the thread that trains.
class Replicas {
 public:
  // `parameters` are views of the model; they and the communicator are lent for the object's life.
  // check_every: steps between comparisons, 0: never.
  Replicas(Communicator& communicator, std::vector<NamedTensor> parameters,
           std::int64_t check_every)
      : communicator_(communicator),
        parameters_(std::move(parameters)),
        check_every_(check_every) {}

  // Once, before the first step.
  Status start(ReplicaStart how);
  // Compares all parameters now; kRankMismatch names the first tensor that differs.
  Status check(const std::string& when);
  // Counts a step, and compares the replicas where it is one of every check_every.
  Status count_step();
  // Of a run that goes on from a checkpoint: so many steps are done.
  void continue_from(std::int64_t steps) { step_ = steps; }

  Communicator& communicator() { return communicator_; }
  std::span<const NamedTensor> parameters() const { return parameters_; }

 private:
  Communicator& communicator_;
  std::vector<NamedTensor> parameters_;
  std::int64_t check_every_;
  std::int64_t step_ = 0;
};

}  // namespace gradwire
