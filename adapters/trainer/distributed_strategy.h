// A strategy of several ranks: what a program asks of it beside training.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "adapters/trainer/interruption.h"
#include "adapters/trainer/mesh/mesh_groups.h"
#include "adapters/trainer/traffic_bytes.h"
#include "gradwire/aggregator.h"
#include "gradwire/status.h"
#include "trainer/strategy/strategy.h"

namespace gradwire {

// How replicas become equal before the first step.
enum class ReplicaStart : std::uint8_t {
  kBroadcast,  // rank 0's parameters replace everybody's
  kCompare,    // all ranks made them alike; kRankMismatch names the first tensor that differs
};

// Elements [begin, begin + values.elems()) of a gradient.
struct GradientPart {
  std::int64_t begin = 0;
  ConstTensorView values;
};

class DistributedStrategy : public Strategy {
 public:
  // The ranks that it works with, as the scopes of consensus() name them.
  virtual MeshGroups& groups() = 0;
  // Collective, once, before the first step.
  virtual Status start(ReplicaStart how) = 0;
  // Collective: compares all parameters now.
  virtual Status check_replicas(const std::string& when) = 0;
  // Before the first step, on all ranks: averages carry word of it. Borrowed.
  virtual void heed(Interruption* interruption) = 0;
  // Whether they are meant to be equal now: between their exchanges some methods let them differ.
  virtual bool replicas_equal() const { return true; }
  // What averages the gradients themselves; null where ranks exchange something else.
  virtual Aggregator* gradient_averages() { return nullptr; }
  // After GradientExchange::finish(), where a rank has a part of each average alone: that of
  // gradient `index`, on the gradients' device; valid until the step. nullopt: the gradient is its
  // average.
  virtual std::optional<GradientPart> average_part(int /*index*/) { return std::nullopt; }
  // Of all exchanges that stood for the gradients', on this rank, since construction.
  virtual AggregateStats stats() const = 0;
  // Messages of these exchanges by what they carried, on this rank, since construction; nothing of
  // classes that no exchange is for (statistics among them).
  virtual TrafficBytes traffic_bytes() const = 0;
  virtual std::vector<std::string> warnings() const = 0;

  // All that it keeps between steps, and the way back, as Aggregator::state() and load_state() say;
  // empty unless replicas_equal().
  virtual std::vector<NamedTensor> state() = 0;
  virtual Status load_state(std::span<const std::vector<NamedTensor>> by_old_rank) = 0;
  // Of a run that goes on from a checkpoint: so many steps are done.
  virtual void continue_from(std::int64_t steps) = 0;
};

}  // namespace gradwire
