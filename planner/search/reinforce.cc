#include "planner/search/reinforce.h"

#include <algorithm>
#include <cmath>

#include "planner/search/draws.h"

namespace gradwire {
namespace {

constexpr std::size_t kRound = 16;  // placements
constexpr double kStepSize = 0.15;  // of Adam
constexpr double kEntropy = 0.02;   // at the start; falls to 0 with the budget
constexpr double kKept = 0.9;       // of the baseline, a round

// Softmax over devices, for each group, and Adam's step on its logits (Kingma and Ba, ICLR 2015).
class TablePolicy {
 public:
  TablePolicy(std::size_t groups, int devices)
      : devices_(static_cast<std::size_t>(devices)),
        logits_(groups * devices_),
        gradient_(logits_.size()),
        first_(logits_.size()),
        second_(logits_.size()) {}

  std::vector<double> probabilities(std::size_t group) const {
    const auto begin = logits_.begin() + static_cast<std::ptrdiff_t>(group * devices_);
    std::vector<double> all(begin, begin + static_cast<std::ptrdiff_t>(devices_));
    const double most = *std::ranges::max_element(all);
    double sum = 0;
    for (double& one : all) sum += one = std::exp(one - most);
    for (double& one : all) one /= sum;
    return all;
  }

  std::vector<int> draw(SearchDraws& draws) const {
    std::vector<int> devices;
    for (std::size_t group = 0; group < logits_.size() / devices_; ++group) {
      const std::vector<double> all = probabilities(group);
      double left = draws.uniform();
      std::size_t device = 0;
      while (device + 1 < devices_ && left >= all[device]) left -= all[device++];
      devices.push_back(static_cast<int>(device));
    }
    return devices;
  }

  // Adds weight * grad log p(devices).
  void add(const std::vector<int>& devices, double weight) {
    for (std::size_t group = 0; group < devices.size(); ++group) {
      const std::vector<double> all = probabilities(group);
      for (std::size_t device = 0; device < devices_; ++device) {
        const double chosen = devices[group] == static_cast<int>(device) ? 1 : 0;
        gradient_[group * devices_ + device] += weight * (chosen - all[device]);
      }
    }
  }
  // Adds weight * the entropy's gradient: -p (log p + H).
  void add_entropy(double weight) {
    for (std::size_t group = 0; group < logits_.size() / devices_; ++group) {
      const std::vector<double> all = probabilities(group);
      constexpr double kLeast = 1e-12;
      double entropy = 0;
      for (const double one : all) entropy -= one * std::log(one + kLeast);
      for (std::size_t device = 0; device < devices_; ++device) {
        gradient_[group * devices_ + device] -=
            weight * all[device] * (std::log(all[device] + kLeast) + entropy);
      }
    }
  }
  void step() {
    constexpr double kFirst = 0.9;
    constexpr double kSecond = 0.999;
    constexpr double kSmall = 1e-8;
    ++steps_;
    for (std::size_t i = 0; i < logits_.size(); ++i) {
      first_[i] = kFirst * first_[i] + (1 - kFirst) * gradient_[i];
      second_[i] = kSecond * second_[i] + (1 - kSecond) * gradient_[i] * gradient_[i];
      const double mean = first_[i] / (1 - std::pow(kFirst, steps_));
      const double square = second_[i] / (1 - std::pow(kSecond, steps_));
      logits_[i] += kStepSize * mean / (std::sqrt(square) + kSmall);
      gradient_[i] = 0;
    }
  }

 private:
  std::size_t devices_;
  std::vector<double> logits_;
  std::vector<double> gradient_;
  std::vector<double> first_;
  std::vector<double> second_;
  int steps_ = 0;
};

}  // namespace

Status ReinforceSearch::search(SearchRecord& record) {
  const OperatorGraph& graph = record.cost().graph();
  SearchDraws draws(record.budget().seed);
  TablePolicy policy(graph.groups().size(), record.cost().cluster().devices());
  double unit = 0;
  double baseline = 0;
  double longest = 0;
  for (int round = 0; !record.is_spent(); ++round) {
    std::vector<std::vector<int>> placements;
    std::vector<double> rewards;
    while (placements.size() < kRound && !record.is_spent()) {
      placements.push_back(policy.draw(draws));
      GW_ASSIGN(const StrategyTime time, record.time(place_groups(graph, placements.back())));
      const auto ticks = static_cast<double>(time.ticks);
      longest = std::max(longest, ticks);
      rewards.push_back(std::sqrt(time.over > 0 ? 2 * longest : ticks));
    }
    double mean = 0;
    for (const double reward : rewards) mean += reward / static_cast<double>(rewards.size());
    if (round == 0) {
      unit = std::max(mean, 1.0);
      baseline = mean;
    }
    for (std::size_t i = 0; i < placements.size(); ++i) {
      policy.add(placements[i],
                 (baseline - rewards[i]) / unit / static_cast<double>(placements.size()));
    }
    baseline = kKept * baseline + (1 - kKept) * mean;
    const double left = 1 - static_cast<double>(record.result().evaluations) /
                                static_cast<double>(record.budget().evaluations);
    policy.add_entropy(kEntropy * left);
    policy.step();
  }
  return {};
}

}  // namespace gradwire
