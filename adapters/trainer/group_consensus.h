// Numbers that all ranks of a group must know of one another, over a communicator.
#pragma once

#include <optional>
#include <span>

#include "adapters/trainer/interruption.h"
#include "gradwire/communicator.h"
#include "gradwire/work.h"
#include "trainer/strategy/consensus.h"

namespace gradwire {

// Means are left folds in rank order, in double, then one multiplication by 1/size.
class GroupConsensus final : public Consensus {
 public:
  // Of ranks that each hold the whole model: Scope::kData and Scope::kWorld are the communicator's
  // ranks, every other scope is this rank alone. Lent for the object's life.
  explicit GroupConsensus(Communicator& world) : world_(world) {}

  // Means over the world carry word of it from now on, on all ranks; borrowed.
  void heed(Interruption* interruption) { interruption_ = interruption; }

  int ranks(Scope scope) const override;
  Status mean(std::span<double> values, Scope scope) override;
  Status sum(std::span<double> values, Scope scope) override;
  Result<bool> any(bool mine, Scope scope) override;
  Status start_mean(std::span<double> values, Scope scope) override;
  Status finish_mean() override;

 private:
  Communicator* group(Scope scope) const;
  // Carried by means over the world alone, which all ranks make at the same time.
  Interruption* word_for(const Communicator* group) const {
    return group == &world_ ? interruption_ : nullptr;
  }

  Communicator& world_;
  Interruption* interruption_ = nullptr;
  std::optional<WithWord> sent_;  // by the mean that is under way
  std::optional<Work> mean_;
  int mean_ranks_ = 1;
};

}  // namespace gradwire
