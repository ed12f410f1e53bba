// The recurrent policy of REINFORCE: its derivatives against finite differences, its draws against
// its probabilities.
#include "planner/search/policy/sequence_policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "planner/graph/built_in_graphs.h"

namespace gradwire::sequence_policy_test {
namespace {

const SequenceSizes kSmall{.units = 5, .embedding = 3, .step_size = 0.02};

SequencePolicy small_policy(std::uint64_t seed = 3) {
  return {group_features(inception_like(1, 8, 16)), 3, kSmall, seed};
}

// By every parameter: what add() says beside the difference of two evaluations.
void check_gradient(double weight, double entropy) {
  SequencePolicy policy = small_policy();
  const std::vector<int> devices{2, 0, 1, 1, 2, 0};
  policy.add(devices, weight, entropy);
  const std::vector<double> gradient = policy.gradient();
  const auto value = [&] {
    return weight * policy.log_probability(devices) + entropy * policy.entropy(devices);
  };
  constexpr double kStep = 1e-5;
  double greatest = 0;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    policy.nudge(i, kStep);
    const double above = value();
    policy.nudge(i, -2 * kStep);
    const double below = value();
    policy.nudge(i, kStep);
    const double difference = (above - below) / (2 * kStep);
    EXPECT_NEAR(gradient[i], difference, 1e-8 + 1e-5 * std::abs(difference)) << "parameter " << i;
    greatest = std::max(greatest, std::abs(difference));
  }
  EXPECT_GT(greatest, 0.01);
}

TEST(SequencePolicy, LogProbabilityHasTheGradientOfFiniteDifferences) { check_gradient(1, 0); }
TEST(SequencePolicy, EntropyHasTheGradientOfFiniteDifferences) { check_gradient(0, 1); }

TEST(SequencePolicy, ProbabilitiesOfAllPlacementsAddUpToOne) {
  OperatorGraph graph = unrolled_lstm(1, 4, 8, 16);
  SequencePolicy policy(group_features(graph), 2, kSmall, 9);
  const auto groups = static_cast<int>(graph.groups().size());
  double sum = 0;
  for (int number = 0; number < 1 << groups; ++number) {
    std::vector<int> devices;
    for (int group = 0; group < groups; ++group) devices.push_back(number >> group & 1);
    sum += std::exp(policy.log_probability(devices));
  }
  EXPECT_NEAR(sum, 1, 1e-12);
}

TEST(SequencePolicy, DrawsAreAsOftenAsTheirProbability) {
  SequencePolicy policy = small_policy();
  SearchDraws draws(7);
  constexpr int kDraws = 4000;
  // The last group's device depends on all draws before it.
  double expected = 0;
  int seen = 0;
  for (int i = 0; i < kDraws; ++i) {
    std::vector<int> devices = policy.draw(draws);
    seen += devices.back() == 1 ? 1 : 0;
    std::vector<double> all;
    for (devices.back() = 0; devices.back() < 3; ++devices.back()) {
      all.push_back(std::exp(policy.log_probability(devices)));
    }
    expected += all[1] / std::accumulate(all.begin(), all.end(), 0.0);
  }
  EXPECT_NEAR(seen, expected, 4 * std::sqrt(kDraws * 0.25));
}

// What is rewarded becomes likelier, also where it depends on the group before.
TEST(SequencePolicy, StepsMakeWhatIsRewardedLikely) {
  SequencePolicy policy = small_policy();
  const std::vector<int> wanted{0, 2, 1, 0, 2, 1};
  const double before = policy.log_probability(wanted);
  for (int step = 0; step < 200; ++step) {
    policy.add(wanted, 1, 0);
    policy.step();
  }
  EXPECT_LT(before, -5);
  EXPECT_GT(policy.log_probability(wanted), std::log(0.9));
}

}  // namespace
}  // namespace gradwire::sequence_policy_test
