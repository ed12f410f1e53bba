// A hook under which every rank holds the whole model: what a program asks of it beside training.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "adapters/trainer/interruption.h"
#include "gradwire/aggregator.h"
#include "gradwire/status.h"
#include "trainer/checkpoint/tensor_file.h"
#include "trainer/hooks.h"

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

class ReplicaHook : public GradientHook {
 public:
  // Collective, once, before the first step.
  virtual Status start(ReplicaStart how) = 0;
  // Collective: compares all parameters now.
  virtual Status check_replicas(const std::string& when) = 0;
  // Before the first step, on all ranks: averages carry word of it. Borrowed.
  virtual void heed(Interruption* interruption) = 0;
  // Whether they are meant to be equal now: between their exchanges some methods let them differ.
  virtual bool replicas_equal() const { return true; }
  // Collective, between steps: on return the trainer's memory holds all parameters on every rank,
  // until the next pass. For hooks under which it does not all the time.
  virtual Status gather_parameters() { return {}; }
  // Collective, between steps: for such hooks, what this rank has of the parameters as passes see
  // them; all ranks' together are everything. Views are valid until the next call of the hook.
  virtual Result<std::optional<std::vector<TensorPart>>> own_parameters() {
    return std::optional<std::vector<TensorPart>>();
  }
  Result<bool> arrived(int /*index*/, bool /*wait*/) override {
    return Status(Code::kUnsupported, "no main gradients with this optimizer or stage of sharding");
  }
  // What averages the gradients themselves; null where ranks exchange something else.
  virtual Aggregator* gradient_averages() { return nullptr; }
  // After before_optimizer_step(), where a rank has a part of each average alone: that of gradient
  // `index`, on the gradients' device; valid until the step. nullopt: the gradient is its average.
  virtual std::optional<GradientPart> average_part(int /*index*/) { return std::nullopt; }
  // Of all exchanges that stood for the gradients', on this rank, since construction.
  virtual AggregateStats stats() const = 0;
  virtual std::vector<std::string> warnings() const = 0;

  // All that it keeps between steps, and the way back, as Aggregator::state() and load_state() say;
  // empty unless replicas_equal().
  virtual std::vector<NamedTensor> state() = 0;
  virtual Status load_state(std::span<const std::vector<NamedTensor>> by_old_rank) = 0;
  // Of a run that goes on from a checkpoint: so many steps are done.
  virtual void continue_from(std::int64_t steps) = 0;
};

}  // namespace gradwire
