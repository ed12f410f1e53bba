#include "planner/search/reinforce.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "planner/cluster/alike_devices.h"
#include "planner/search/policy/sequence_policy.h"
#include "planner/search/policy/table_policy.h"
#include "planner/search/simple_placements.h"

namespace gradwire {
namespace {

// How long a policy's choices are looked at before others.
struct ReinforcePlan {
  std::size_t round = 16;  // placements
  double entropy = 0.02;   // in a policy's first round
  double exploring = 60;   // rounds in which that falls to 0
};

// One policy's rewards: the square roots of its placements' times, in nanoseconds.
class Baseline {
 public:
  // After a round.
  void add(const std::vector<double>& rewards) {
    constexpr double kKept = 0.9;
    double mean = 0;
    for (const double reward : rewards) mean += reward / static_cast<double>(rewards.size());
    mean_ = mean_ == 0 ? mean : kKept * mean_ + (1 - kKept) * mean;
  }
  bool is_first() const { return mean_ == 0; }
  // Relative to it, so that an entropy term weighs the same whatever the times are.
  double better_by(double reward) const { return (mean_ - reward) / std::max(mean_, 1.0); }

 private:
  double mean_ = 0;
};

// Whether more than half of them are one and the same.
bool is_settled(const std::vector<std::vector<int>>& placements) {
  return std::ranges::any_of(placements, [&](const std::vector<int>& one) {
    return static_cast<std::size_t>(std::ranges::count(placements, one)) * 2 > placements.size();
  });
}

// Placements that need no search: everything on a device of each kind of node, and the expert's
// cuts.
Result<std::vector<OperatorStrategy>> known_placements(const OperatorGraph& graph,
                                                       const Cluster& cluster) {
  const std::vector<int> kinds = alike_nodes(cluster);
  const std::size_t groups = graph.groups().size();
  std::vector<OperatorStrategy> known;
  int first = 0;  // device of the node
  for (std::size_t node = 0; node < kinds.size(); ++node) {
    if (kinds[node] == static_cast<int>(node)) {
      known.push_back(place_groups(graph, std::vector<int>(groups, first)));
    }
    first += cluster.nodes[node].devices;
  }
  GW_ASSIGN(OperatorStrategy cut, cut_by_hand(graph, cluster.devices()));
  known.push_back(std::move(cut));
  return known;
}

using MakePolicy = std::function<std::unique_ptr<PlacementPolicy>()>;

// Policies one after another, each until it has settled, as far as the budget goes; then what is
// known without them.
class Reinforce {
 public:
  Reinforce(SearchRecord& record, MakePolicy make_policy, SearchDraws& draws)
      : record_(record), make_policy_(std::move(make_policy)), draws_(draws) {}

  Status run() {
    GW_ASSIGN(std::vector<OperatorStrategy> known,
              known_placements(record_.cost().graph(), record_.cost().cluster()));
    const std::int64_t all = record_.budget().evaluations;
    known.resize(static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(known), all / 2)));
    learning_ = all - std::ssize(known);
    while (!has_learnt()) GW_TRY(train_one());
    for (const OperatorStrategy& one : known) GW_TRY(record_.time(one).error());
    return {};
  }

 private:
  bool has_learnt() const { return record_.result().evaluations >= learning_; }

  Status train_one() {
    const std::unique_ptr<PlacementPolicy> policy = make_policy_();
    Baseline baseline;
    for (double round = 0; !has_learnt(); ++round) {
      std::vector<std::vector<int>> placements;
      std::vector<double> rewards;
      while (placements.size() < plan_.round && !has_learnt()) {
        placements.push_back(policy->draw(draws_));
        GW_ASSIGN(const double reward, reward_of(placements.back()));
        rewards.push_back(reward);
      }
      if (is_settled(placements)) return {};
      if (baseline.is_first()) baseline.add(rewards);
      const auto count = static_cast<double>(rewards.size());
      const double entropy = plan_.entropy * std::max(0.0, 1 - round / plan_.exploring);
      for (std::size_t i = 0; i < placements.size(); ++i) {
        policy->add(placements[i], baseline.better_by(rewards[i]) / count, entropy / count);
      }
      baseline.add(rewards);
      policy->step();
    }
    return {};
  }

  Result<double> reward_of(const std::vector<int>& placement) {
    GW_ASSIGN(const StrategyTime time,
              record_.time(place_groups(record_.cost().graph(), placement)));
    const auto ticks = static_cast<double>(time.ticks);
    longest_ = std::max(longest_, ticks);
    return std::sqrt(time.over > 0 ? 2 * longest_ : ticks);
  }

  SearchRecord& record_;
  MakePolicy make_policy_;
  SearchDraws& draws_;
  ReinforcePlan plan_;
  std::int64_t learning_ = 0;  // evaluations of placements that policies draw
  double longest_ = 0;
};

}  // namespace

Status ReinforceSearch::search(SearchRecord& record) {
  SearchDraws draws(record.budget().seed);
  const MakePolicy table = [&record] {
    return std::make_unique<TablePolicy>(record.cost().graph().groups().size(),
                                         record.cost().cluster().devices());
  };
  return Reinforce(record, table, draws).run();
}

Status RecurrentReinforceSearch::search(SearchRecord& record) {
  SearchDraws draws(record.budget().seed);
  std::uint64_t seed = record.budget().seed;
  const MakePolicy sequence = [&record, &seed] {
    return std::make_unique<SequencePolicy>(group_features(record.cost().graph()),
                                            record.cost().cluster().devices(), SequenceSizes{},
                                            ++seed);
  };
  return Reinforce(record, sequence, draws).run();
}

}  // namespace gradwire
