// Numbers that all ranks of a group must know of one another, over a communicator.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "adapters/trainer/interruption.h"
#include "adapters/trainer/mesh/mesh_groups.h"
#include "gradwire/communicator.h"
#include "gradwire/work.h"
#include "trainer/strategy/consensus.h"

namespace gradwire {

// Sums are left folds in rank order, in double; a mean is one multiplication by 1/size more.
class GroupConsensus final : public Consensus {
 public:
  // Scopes are groups of the mesh; those that were never asked for are not made.
  explicit GroupConsensus(MeshGroups groups) : groups_(std::move(groups)) {}

  // Sums and means over the whole world carry word of it from now on, on all ranks; borrowed.
  void heed(Interruption* interruption) { interruption_ = interruption; }
  // Whose ranks the scopes are.
  MeshGroups& groups() { return groups_; }

  int ranks(Scope scope) const override;
  Status mean(std::span<double> values, Scope scope) override;
  Status sum(std::span<double> values, Scope scope) override;
  Result<bool> any(bool mine, Scope scope) override;
  Status start_sums(std::span<const ScopedValues> sums) override;
  Status finish_sums() override;
  Status start_asking(std::span<double> values) override;
  Result<bool> heard() override;

 private:
  // Sums over one group that travel together, and where they go when they are there.
  struct Message {
    Communicator* group = nullptr;
    std::vector<std::span<double>> parts;
    std::vector<double> values;
    std::optional<Work> work;
  };
  // To a sum that all ranks make at the same time.
  Interruption* word_for(const Communicator& group) const {
    return group.size() == groups_.sizes().ranks() ? interruption_ : nullptr;
  }
  Message& message_to(Communicator& group);
  Status start(Message& message);
  void hand_out(const Message& message);

  MeshGroups groups_;
  Interruption* interruption_ = nullptr;
  std::vector<Message> under_way_;
  Message asked_;
};

}  // namespace gradwire
