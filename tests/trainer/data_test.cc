// Normalisation and the order of samples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "trainer/data/data_set.h"
#include "trainer/data/order.h"

namespace gradwire::data_test {
namespace {

using ::testing::ElementsAre;
using Indices = std::vector<std::uint32_t>;

Indices copy(std::span<const std::uint32_t> span) { return {span.begin(), span.end()}; }

TEST(Normalisation, ByHandPerChannel) {
  // Two samples, two channels of two pixels. Channel 0: 0 0 255 255, channel 1: all 51.
  const Samples samples{{0, 0, 51, 51, 255, 255, 51, 51}, {3, 4}};
  const SampleShape shape{2, 1, 2};
  const Normalisation measured = measure_normalisation(samples, shape);
  EXPECT_THAT(measured.mean, ElementsAre(0.5, 0.2));
  EXPECT_THAT(measured.deviation, ElementsAre(0.5, 1.0));  // a constant keeps its scale
  const DataSet set("hand", shape, 10, measured, samples, {});
  std::vector<float> out(8);
  std::vector<std::uint32_t> labels(2);
  set.take(set.train(), Indices{1, 0}, out, labels);
  EXPECT_THAT(out, ElementsAre(1, 1, 0, 0, -1, -1, 0, 0));
  EXPECT_THAT(labels, ElementsAre(4, 3));
}

TEST(DataOrder, IsAPermutationOfEveryEpoch) {
  DataOrder order(1000, 1, Shuffle::kEpoch);
  const Indices first = copy(order.epoch(0));
  Indices sorted = first;
  std::sort(sorted.begin(), sorted.end());
  Indices identity(1000);
  std::iota(identity.begin(), identity.end(), 0u);
  EXPECT_EQ(sorted, identity);
  EXPECT_NE(first, identity);
  const Indices second = copy(order.epoch(1));
  EXPECT_NE(second, first);
  // Going back gives the same: nothing is carried from epoch to epoch.
  EXPECT_EQ(copy(order.epoch(0)), first);
  EXPECT_EQ(copy(DataOrder(1000, 1, Shuffle::kEpoch).epoch(1)), second);
  EXPECT_NE(copy(DataOrder(1000, 2, Shuffle::kEpoch).epoch(0)), first);
}

TEST(DataOrder, EveryPlaceIsEquallyLikely) {
  // 4 samples, 24,000 epochs: each of the 24 orders is expected 1,000 times, sd 31.
  std::vector<int> seen(256);
  DataOrder order(4, 5, Shuffle::kEpoch);
  for (int epoch = 0; epoch < 24000; ++epoch) {
    const auto now = order.epoch(epoch);
    ++seen[now[0] * 64 + now[1] * 16 + now[2] * 4 + now[3]];
  }
  EXPECT_EQ(std::count_if(seen.begin(), seen.end(), [](int n) { return n > 0; }), 24);
  for (const int count : seen) {
    if (count > 0) {
      EXPECT_NEAR(count, 1000, 6 * 31);
    }
  }
}

TEST(DataOrder, NoneIsFileOrderInEveryEpoch) {
  DataOrder order(5, 1, Shuffle::kNone);
  EXPECT_THAT(order.epoch(0), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(order.epoch(7), ElementsAre(0, 1, 2, 3, 4));
}

TEST(DataOrder, MicroBatchesAreEqualPartsOfTheStepsSamples) {
  Indices order(14);
  std::iota(order.begin(), order.end(), 100u);
  EXPECT_THAT(micro_batch(order, 6, 0, {0, 2}), ElementsAre(100, 101));
  EXPECT_THAT(micro_batch(order, 6, 0, {4, 6}), ElementsAre(104, 105));
  EXPECT_THAT(micro_batch(order, 6, 1, {0, 2}), ElementsAre(106, 107));
  EXPECT_THAT(micro_batch(order, 6, 1, {0, 6}), ElementsAre(106, 107, 108, 109, 110, 111));
}

TEST(DataOrder, NoSamplesAndOneSample) {
  EXPECT_TRUE(DataOrder(0, 1, Shuffle::kEpoch).epoch(3).empty());
  EXPECT_THAT(DataOrder(1, 1, Shuffle::kEpoch).epoch(3), ElementsAre(0));
}

}  // namespace
}  // namespace gradwire::data_test
