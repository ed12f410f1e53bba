// A server's blocks and locks, with threads that read and write at the same time.
#include "adapters/trainer/modes/server/parameter_shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "adapters/trainer/modes/server/staleness_gate.h"
#include "tests/adapters/modes/toy_source.h"
#include "tests/support/fails.h"

namespace gradwire::testing::parameter_shard_test {
namespace {

TEST(KeyBlocks, CutRowsAndShareThemOut) {
  const auto cut = cut_into_blocks(toy_table(), 400, 2);
  ASSERT_TRUE(cut.has_value());
  const std::vector<KeyBlock>& blocks = cut.value();
  // 8 x 6, 8, then 40 rows of 32 in blocks of 12 rows, then 40.
  ASSERT_EQ(blocks.size(), 7U);
  EXPECT_EQ(blocks[2].shape, Shape::matrix(12, 32));
  EXPECT_EQ(blocks[5].shape, Shape::matrix(4, 32));
  EXPECT_EQ(blocks[5].offset, 56 + 36 * 32);
  std::int64_t end = 0;
  for (const KeyBlock& block : blocks) {
    EXPECT_EQ(block.offset, end);
    end += block.shape.elems();
  }
  EXPECT_EQ(end, 1376);
  // The middle of the flat buffer, 688, lies in the block 440 .. 824, whose own middle is 632.
  EXPECT_EQ(range_of(blocks, 0).count, 824);
  EXPECT_EQ(range_of(blocks, 1).first, 824);
  EXPECT_EQ(range_of(blocks, 1).count, 552);
  const auto none = cut_into_blocks(toy_table(), 1 << 20, 4);
  EXPECT_THAT(none.error(), fails(Code::kInvalidArgument, "block", "server"));
}

// Pushes add 1 to everything, each to a block under its lock: whoever reads a block sees one number
// in all of it, its version.
TEST(ParameterShard, P2_APullIsNeverTornAndKnowsItsVersion) {
  const ParameterTable table{{"w", Shape::matrix(64, 512), 1, 0}};
  const std::vector<KeyBlock> blocks = std::move(cut_into_blocks(table, 8192, 1)).value();
  ASSERT_EQ(blocks.size(), 4U);
  std::vector<float> values(64 * 512, 0.0F);
  const auto made = ParameterShard::create(table, blocks, values, {{.momentum = 0}, false, 1000});
  ASSERT_TRUE(made.has_value());
  ParameterShard& shard = *made.value();
  constexpr int kPushes = 150;
  std::vector<std::jthread> threads;
  for (int worker = 0; worker < 2; ++worker) {
    threads.emplace_back([&, worker] {
      const std::vector<float> minus_one(values.size(), -1.0F);
      for (int i = 0; i < kPushes; ++i) {
        (void)shard.apply({.worker = worker, .step = i, .base = {0, 0, 0, 0}}, minus_one, 1.0);
      }
    });
  }
  std::vector<float> seen(values.size());
  std::vector<std::int64_t> versions(4);
  for (int i = 0; i < 200; ++i) {
    shard.read(seen, versions);
    for (std::size_t b = 0; b < 4; ++b) {
      const auto part = part_of(std::span<const float>(seen), blocks[b]);
      const auto wanted = static_cast<float>(versions[b]);
      ASSERT_TRUE(std::ranges::all_of(part, [&](float x) { return x == wanted; }))
          << "block " << b << ", version " << versions[b];
    }
  }
  threads.clear();
  shard.read(seen, versions);
  EXPECT_EQ(seen.front(), 2.0F * kPushes);
  EXPECT_EQ(shard.overlaps(), 0);
  ASSERT_EQ(shard.log().size(), 2U * kPushes);
  // Pushes that were all computed at the start are as stale as there were others before them.
  for (std::size_t v = 0; v < shard.log().size(); ++v) {
    EXPECT_EQ(shard.log()[v].staleness, static_cast<std::int64_t>(v));
  }
}

// A server runs for as long as its workers push: an entry, with a version of every block, for each
// of a million pushes is memory that nobody asked for.
TEST(ParameterShard, KeepsAsManyEntriesAsAskedForAndCountsAll) {
  const ParameterTable table{{"w", Shape::matrix(4, 8), 1, 0}};
  for (const std::size_t most : {std::size_t{0}, std::size_t{3}}) {
    std::vector<float> values(32, 0.0F);
    ShardOptions options;
    options.log_most = most;
    const auto made = ParameterShard::create(table, std::move(cut_into_blocks(table, 8, 1)).value(),
                                             values, options);
    ASSERT_TRUE(made.has_value());
    ParameterShard& shard = *made.value();
    const std::vector<float> gradient(32, 0.0F);
    // Computed at version 0 all of them, but the fifth: stale by 0, 1, 2, 3, 0, 5, ..., 9.
    for (std::int64_t push = 0; push < 10; ++push) {
      const std::int64_t base = push == 4 ? 4 : 0;
      ASSERT_TRUE(shard
                      .apply({.step = push, .base = {base, base, base, base}, .lead = push % 4},
                             gradient, 1)
                      .ok());
    }
    ASSERT_EQ(shard.log().size(), most);
    for (std::size_t i = 0; i < most; ++i) {
      EXPECT_EQ(shard.log()[i].step, static_cast<std::int64_t>(10 - most + i));
    }
    EXPECT_EQ(shard.counts().pushes, 10);
    EXPECT_EQ(shard.counts().staleness, 45 - 4);
    EXPECT_EQ(shard.counts().most_staleness, 9);
    EXPECT_EQ(shard.counts().most_lead, 3);
  }
}

TEST(StalenessGate, HoldsBackLetsGoAndSaysWhom) {
  StalenessGate gate(2, 1);
  const auto soon = [] { return deadline_in(0.02); };
  EXPECT_EQ(gate.enter(0, soon()).value(), 0);
  gate.advance(0, 1);
  EXPECT_EQ(gate.enter(0, soon()).value(), 1);
  gate.advance(0, 1);
  const auto late = gate.enter(0, soon());
  EXPECT_THAT(late.error(), fails(Code::kTimedOut, "worker 0", "2 steps", "worker 1"));
  gate.advance(1, 1);
  EXPECT_EQ(gate.enter(0, soon()).value(), 1);
  gate.advance(0, 5);
  gate.leave(1);
  EXPECT_EQ(gate.enter(0, soon()).value(), 0);
  gate.stop(Status(Code::kPeerLost, "rank 2 lost"));
  EXPECT_EQ(gate.enter(0, soon()).error().code(), Code::kPeerLost);
}

}  // namespace
}  // namespace gradwire::testing::parameter_shard_test
