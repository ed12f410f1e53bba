#include "trainer/accounts/layer_traffic.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/philox.h"
#include "gradwire/schedule.h"

namespace gradwire::layer_traffic_test {
namespace {

struct Dense {
  std::int64_t samples = 1;
  std::int64_t in = 1;
  std::int64_t out = 1;
  LayerSize size() const { return {in * out, in, out}; }
};

// Elements that all ranks of a ring send, message by message: in every round but the last each
// rank passes one part of the tensor on.
std::int64_t gathered(std::int64_t elems, int ranks) {
  std::int64_t sent = 0;
  for (int round = 0; round + 1 < ranks; ++round) {
    for (int rank = 0; rank < ranks; ++rank) {
      sent += piece(elems, ranks, (rank + round) % ranks).size();
    }
  }
  return sent;
}
std::int64_t reduced(std::int64_t elems, int ranks) {  // reduce-scatter and all-gather
  return gathered(elems, ranks) + gathered(elems, ranks);
}

// The cheapest of the three of the seeds' table, by counting.
LayerDivision cheapest(const Dense& of, int ranks) {
  const std::int64_t averaged = reduced(of.out * of.in, ranks);
  const std::int64_t partitioned =
      gathered(of.samples * of.in, ranks) + gathered(of.samples * of.in, ranks);
  const std::int64_t summed = reduced(of.samples * of.out, ranks);
  if (averaged <= partitioned && averaged <= summed) return LayerDivision::kDataParallel;
  return partitioned <= summed ? LayerDivision::kPartitionOutput : LayerDivision::kReduceOutput;
}

TEST(LayerTraffic, M6_TheSmallestIsWhatCountingFinds) {
  const RandomStream stream(6, RandomUse::kTest, 0, 0, 0, 0);
  std::vector<int> found(kLayerDivisions.size());
  for (std::uint64_t layer = 0; layer < 50; ++layer) {
    const auto drawn = [&](std::uint64_t number, std::uint64_t most) {
      return static_cast<std::int64_t>(1 + stream.block(4 * layer + number)[0] % most);
    };
    const Dense dense{drawn(0, 600), drawn(1, 600), drawn(2, 600)};
    const auto ranks = static_cast<int>(1 + drawn(3, 7));
    const LayerDivision least = least_traffic(dense.size(), dense.samples);
    EXPECT_EQ(least, cheapest(dense, ranks)) << dense.samples << " samples, " << dense.in << " to "
                                             << dense.out << ", " << ranks << " ranks";
    ++found[static_cast<std::size_t>(least)];
  }
  // All three occur, else the draws would not tell them apart.
  EXPECT_GT(found[static_cast<std::size_t>(LayerDivision::kDataParallel)], 4);
  EXPECT_GT(found[static_cast<std::size_t>(LayerDivision::kPartitionOutput)], 4);
  EXPECT_GT(found[static_cast<std::size_t>(LayerDivision::kReduceOutput)], 4);
}

TEST(LayerTraffic, EqualTotalsGoToTheFirst) {
  EXPECT_EQ(least_traffic({64, 8, 8}, 8), LayerDivision::kDataParallel);
  EXPECT_EQ(least_traffic({64, 8, 8}, 7), LayerDivision::kPartitionOutput);
  EXPECT_EQ(least_traffic({32, 8, 4}, 3), LayerDivision::kReduceOutput);
}

TEST(LayerTraffic, ARankSendsItsShareOfTheElements) {
  for (const int ranks : {1, 2, 3, 8}) {
    const auto all = static_cast<double>(reduced(2520, ranks));
    EXPECT_DOUBLE_EQ(sent_by_rank(2 * 2520, ranks), all / ranks) << ranks;
  }
}

}  // namespace
}  // namespace gradwire::layer_traffic_test
