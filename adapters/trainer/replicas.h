// Ranks that hold the same parameters: how they become equal, stay so, and average their losses.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "adapters/trainer/interruption.h"
#include "adapters/trainer/replica_hook.h"
#include "gradwire/communicator.h"
#include "gradwire/registry.h"
#include "gradwire/work.h"

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
  // Averages carry word of it from now on, on all ranks; borrowed.
  void heed(Interruption* interruption) { interruption_ = interruption; }
  // A left fold in rank order, in double, then one multiplication by 1/size.
  Status average(std::span<double> values);
  // The same, started: `values` are lent until finish_average() has returned. One at a time, but
  // average() may be called in between.
  Status start_average(std::span<double> values);
  Status finish_average();

  Communicator& communicator() { return communicator_; }
  std::span<const NamedTensor> parameters() const { return parameters_; }

 private:
  Result<Work> mean(std::span<double> values);

  Communicator& communicator_;
  std::vector<NamedTensor> parameters_;
  std::int64_t check_every_;
  std::int64_t step_ = 0;
  Interruption* interruption_ = nullptr;
  std::optional<WithWord> sent_;  // by the average that is under way
  std::optional<Work> average_;
};

}  // namespace gradwire
