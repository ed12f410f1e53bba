// Numbers that all ranks of a group must know of one another, over a communicator.
#pragma once

#include <optional>
#include <span>
#include <utility>

#include "adapters/trainer/interruption.h"
#include "adapters/trainer/mesh/mesh_groups.h"
#include "gradwire/communicator.h"
#include "gradwire/work.h"
#include "trainer/strategy/consensus.h"

namespace gradwire {

// Means are left folds in rank order, in double, then one multiplication by 1/size.
class GroupConsensus final : public Consensus {
 public:
  // Scopes are groups of the mesh; those that were never asked for are not made.
  explicit GroupConsensus(MeshGroups groups) : groups_(std::move(groups)) {}
  // Of ranks that each hold the whole model: Scope::kData is all of them. Lent for the object's
  // life.
  static Result<GroupConsensus> of_replicas(Communicator& world);

  // Means over the whole world carry word of it from now on, on all ranks; borrowed.
  void heed(Interruption* interruption) { interruption_ = interruption; }

  int ranks(Scope scope) const override;
  Status mean(std::span<double> values, Scope scope) override;
  Status sum(std::span<double> values, Scope scope) override;
  Result<bool> any(bool mine, Scope scope) override;
  Status start_mean(std::span<double> values, Scope scope) override;
  Status finish_mean() override;

 private:
  // Carried by means that all ranks make at the same time.
  Interruption* word_for(Scope scope) const {
    return ranks(scope) == groups_.sizes().ranks() ? interruption_ : nullptr;
  }

  MeshGroups groups_;
  Interruption* interruption_ = nullptr;
  std::optional<WithWord> sent_;  // by the mean that is under way
  std::optional<Work> mean_;
  int mean_ranks_ = 1;
};

}  // namespace gradwire
