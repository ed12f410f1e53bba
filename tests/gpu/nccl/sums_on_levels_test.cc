// All-reduces of groups whose nodes are joined by messages: their bits, what goes which way, that
// the host waits for none of it, and how they end. Over the library that plays NCCL, on the device
// that the host plays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/philox.h"
#include "collectives/device/level_execution.h"
#include "tests/emulation/emulated_device.h"
#include "tests/gpu/nccl/capture.h"
#include "tests/gpu/nccl/nccl_threads.h"
#include "tests/gpu/nccl/over_fake_nccl.h"
#include "tests/gpu/on_device.h"
#include "tests/support/names.h"
#include "tests/support/process_ranks.h"

namespace gradwire {
namespace {

using gpu::OnDevice;
using gpu::OwnStream;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using Floats = std::vector<float>;
using Nodes4 = std::vector<int>;

const Nodes4 kTwoByTwo{0, 0, 1, 1};

std::string text(const Status& status) { return std::string(status.message()); }

// Sums of three of them have other bits in another order.
float value_of(int rank, std::int64_t e) {
  const std::uint64_t bits =
      mix64(static_cast<std::uint64_t>(e) * 8 + static_cast<std::uint64_t>(rank));
  return (static_cast<float>(bits >> 40) - 8e6F) * 1e-3F;
}

Floats values_of(int rank, std::int64_t elems) {
  Floats values;
  for (std::int64_t e = 0; e < elems; ++e) values.push_back(value_of(rank, e));
  return values;
}

// Of each node, then of the nodes: two of each have one order.
Floats sum_by_node(const Nodes4& node_of, std::int64_t elems, float factor = 1) {
  Floats sums;
  for (std::int64_t e = 0; e < elems; ++e) {
    std::array<float, 2> nodes{};
    for (std::size_t r = 0; r < node_of.size(); ++r) {
      nodes[static_cast<std::size_t>(node_of[r])] += value_of(static_cast<int>(r), e);
    }
    sums.push_back((nodes[0] + nodes[1]) * factor);
  }
  return sums;
}

class SumsOnLevels : public gpu::OverFakeNccl {
 protected:
  static std::vector<std::string> on_nodes(const Nodes4& node_of, const gpu::NcclProgram& program,
                                           double deadline_seconds = 20) {
    const CommunicatorOptions options{
        .deadline_seconds = deadline_seconds, .algorithm = "two_level", .node_of = node_of};
    return gpu::on_nccl_threads(static_cast<int>(node_of.size()), options, {GW_FAKE_NCCL}, program);
  }
};

class SumsOnLevelsOf : public SumsOnLevels, public testing::WithParamInterface<Nodes4> {};

// One part, parts for all, and parts that are cut between cache lines.
TEST_P(SumsOnLevelsOf, AreThoseOfNodesAndThenOfRanks) {
  const Nodes4& node_of = GetParam();
  const auto texts = on_nodes(node_of, [&](std::unique_ptr<Communicator> world) -> std::string {
    const OwnStream own;
    for (const std::int64_t elems : {0, 1, 4096, 4097, 50'001}) {
      const Floats mine = values_of(world->rank(), elems);
      const OnDevice in = gpu::uploaded(mine), out(4 * static_cast<std::size_t>(elems));
      const OnDevice place = gpu::uploaded(mine);
      auto apart =
          world->all_reduce(in.tensor<float>(), out.tensor<float>(), ReduceOp::kSum, own.options());
      auto there = world->all_reduce(place.tensor<float>(), ReduceOp::kMean, own.options());
      for (auto* work : {&apart, &there}) {
        const Status ended = work->has_value() ? work->value().wait() : work->error();
        if (!ended.ok()) return text(ended);
      }
      const std::string which = std::to_string(elems) + " elements";
      const auto ranks = static_cast<float>(node_of.size());
      if (in.values<float>() != mine) return which + ": the input is another";
      if (out.values<float>() != sum_by_node(node_of, elems)) return which + ": wrong sum";
      if (place.values<float>() != sum_by_node(node_of, elems, 1 / ranks)) return which + ": mean";
    }
    return world->describe();
  });
  EXPECT_THAT(texts, Each(HasSubstr("by NCCL inside 2 nodes, by messages between them")));
  EXPECT_THAT(std::string(fake_.take_log()),
              AllOf(HasSubstr("ncclReduce rank 0: count 4096"), Not(HasSubstr("ncclAllReduce"))));
}
INSTANTIATE_TEST_SUITE_P(Nodes, SumsOnLevelsOf,
                         testing::Values(kTwoByTwo, Nodes4{0, 1, 0, 1}, Nodes4{0, 1, 1}));

TEST_F(SumsOnLevels, OfManyTensorsMaximaAndFactorsToo) {
  const auto texts = on_nodes(kTwoByTwo, [](std::unique_ptr<Communicator> world) -> std::string {
    const OwnStream own;
    const int rank = world->rank();
    const OnDevice small = gpu::uploaded(values_of(rank, 5)), none(0);
    const OnDevice large = gpu::uploaded(values_of(rank, 9000));
    const std::vector<TensorView> tensors{small.tensor<float>(), none.tensor<float>(),
                                          large.tensor<float>()};
    const OnDevice most = gpu::uploaded(
        Floats{static_cast<float>(rank), rank == 2 ? std::nanf("") : 1, rank == 1 ? 0.0F : -0.0F});
    const OnDevice scaled = gpu::uploaded(Floats{1, 2});
    OpOptions factor = own.options();
    factor.factor = rank + 1;
    auto sums = world->all_reduce_fused(tensors, ReduceOp::kSum, own.options());
    auto maxima = world->all_reduce(most.tensor<float>(), ReduceOp::kMax, own.options());
    auto weighed = world->all_reduce(scaled.tensor<float>(), ReduceOp::kPreMulSum, factor);
    for (auto* work : {&sums, &maxima, &weighed}) {
      const Status ended = work->has_value() ? work->value().wait() : work->error();
      if (!ended.ok()) return text(ended);
    }
    if (small.values<float>() != sum_by_node(kTwoByTwo, 5)) return "the small tensor";
    if (large.values<float>() != sum_by_node(kTwoByTwo, 9000)) return "the large tensor";
    const Floats seen = most.values<float>();
    if (seen[0] != 3 || !std::isnan(seen[1]) || std::signbit(seen[2])) return "the maxima";
    return scaled.values<float>() == Floats{10, 20} ? "" : "the factors";
  });
  EXPECT_THAT(texts, Each(""));
}

// By NCCL alone: groups that have one level, a graph, and what no sum is.
TEST_F(SumsOnLevels, WhereTheyAreOneLevelNcclHasAll) {
  const auto texts =
      on_nodes(kTwoByTwo, [this](std::unique_ptr<Communicator> world) -> std::string {
        const OnDevice one = gpu::uploaded(Floats{1});
        const OwnStream own;
        const auto sum = [&](Communicator& group) {
          auto work = group.all_reduce(one.tensor<float>(), ReduceOp::kSum, own.options());
          return work.has_value() ? work.value().wait() : work.error();
        };
        auto all = world->split(0, -world->rank());
        if (!all.has_value()) return text(all.error());
        if (all.value()->describe().find("inside 2 nodes") == std::string::npos) return "no levels";
        if (const Status ended = sum(*all.value()); !ended.ok()) return text(ended);
        for (const int color : {world->rank() % 2, world->rank() / 2}) {
          auto group = world->split(color, 0);
          if (!group.has_value()) return text(group.error());
          if (group.value()->describe().find("inside") != std::string::npos) return "two levels";
          if (const Status ended = sum(*group.value()); !ended.ok()) return text(ended);
        }
        if (one.values<float>() != Floats{16}) return "wrong sum";
        gpu::CapturedWork graph([&](const Stream& stream) {
          return world
              ->all_reduce(one.tensor<float>(), ReduceOp::kMean,
                           {.deadline = std::nullopt, .stream = stream})
              .error();
        });
        graph.run();
        if (!graph.error().empty()) return graph.error();
        return one.values<float>() == Floats{16} ? "" : "wrong mean";
      });
  EXPECT_THAT(texts, Each(""));
  EXPECT_THAT(std::string(fake_.take_log()), HasSubstr("ncclAllReduce rank 3: count 1"));
}

// The stream of each rank is held until all have called, and another one waits for the sum.
TEST_F(SumsOnLevels, TheHostWaitsForNothing) {
  std::atomic<int> called = 0;
  const auto texts = on_nodes(kTwoByTwo, [&](std::unique_ptr<Communicator> world) -> std::string {
    const OnDevice sum = gpu::uploaded(values_of(world->rank(), 5000));
    const OnDevice seen(20'000);
    const OwnStream own, other;
    emulation::hold(own.stream().native);
    auto work = world->all_reduce(sum.tensor<float>(), ReduceOp::kSum, own.options());
    if (!work.has_value()) return text(work.error());
    const Status held = work.value().wait_on(other.stream());
    const Status copied =
        copy_bytes(sum.bytes(), gpu::kFirst, seen.bytes(), gpu::kFirst, other.stream());
    const bool at_once = !work.value().done();
    ++called;
    for (const Deadline until = deadline_in(15);
         called < 4 && std::chrono::steady_clock::now() < until;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    emulation::release(own.stream().native);
    const Status ended = cuda::synchronize(other.stream());
    for (const Status& status : {held, copied, ended, work.value().wait()}) {
      if (!status.ok()) return text(status);
    }
    if (!at_once || called < 4) return "it waited";
    return seen.values<float>() == sum_by_node(kTwoByTwo, 5000) ? "" : "wrong sum";
  });
  EXPECT_THAT(texts, Each(""));
}

// With a driver whose streams wait for no word of memory the host waits for the messages between
// nodes, and goes on when they are there.
TEST_F(SumsOnLevels, TheHostWaitsForMessagesWhereTheDeviceCannot) {
  emulation::refuse_word_waits(true);
  const auto texts = on_nodes(kTwoByTwo, [&](std::unique_ptr<Communicator> world) -> std::string {
    for (int round = 0; round < 4; ++round) {
      const OnDevice sum = gpu::uploaded(values_of(world->rank(), 5000));
      const OwnStream own;
      // Ranks of one node come later, and with them what is between nodes.
      if (world->rank() >= 2) std::this_thread::sleep_for(std::chrono::milliseconds(30));
      auto work = world->all_reduce(sum.tensor<float>(), ReduceOp::kSum, own.options());
      const Status ended = work.has_value() ? work.value().wait() : work.error();
      if (!ended.ok()) return text(ended);
      if (sum.values<float>() != sum_by_node(kTwoByTwo, 5000)) return "wrong sum";
    }
    return "";
  });
  emulation::refuse_word_waits(false);
  EXPECT_THAT(texts, Each(""));
}

// What it has lent is its own until the device has come past it, whatever became of it.
TEST(Levels, HaveLeftWhenTheirStreamHasComePast) {
  const auto memory = std::make_shared<OwnMemory>();
  auto levels = Levels::make(*memory, 2, gpu::kFirst);
  ASSERT_TRUE(levels.has_value());
  const OwnStream own;
  emulation::hold(own.stream().native);
  EXPECT_TRUE(levels.value()->write_byte(0, own.stream()).ok());
  EXPECT_TRUE(levels.value()->finish(own.stream()).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(levels.value()->left());
  emulation::release(own.stream().native);
  EXPECT_TRUE(cuda::synchronize(own.stream()).ok());
  EXPECT_TRUE(levels.value()->left());
}

// Its streams go on, so that the operation's end is known soon, and the others can go on.
TEST_F(SumsOnLevels, ARankThatIsMissingIsNamedAndTheOthersMayGoOn) {
  constexpr double kLimit = 0.5;
  const ProcessCount made;  // communicators, which is the work of all
  const auto texts = on_nodes(
      kTwoByTwo,
      [&](std::unique_ptr<Communicator> world) -> std::string {
        made.come();
        const OnDevice sum = gpu::uploaded(values_of(world->rank(), 9000));
        const OwnStream own;
        if (world->rank() == 3) {
          EXPECT_TRUE(made.await(4, 20));
          world->abort("on purpose");
          return "rank 3, operation 4";
        }
        auto work = world->all_reduce(sum.tensor<float>(), ReduceOp::kSum, own.options());
        const Status ended = work.has_value() ? work.value().wait() : work.error();
        if (const Status past = cuda::synchronize(own.stream()); !past.ok()) return text(past);
        auto left = world->shrink(deadline_in(10));
        if (!left.has_value()) return "shrink: " + text(left.error());
        const OnDevice one = gpu::uploaded(Floats{1});
        auto again = left.value()->all_reduce(one.tensor<float>(), ReduceOp::kSum, own.options());
        const Status gone_on = again.has_value() ? again.value().wait() : again.error();
        if (!gone_on.ok()) return text(gone_on);
        if (one.values<float>() != Floats{3}) return "wrong sum of those who are left";
        return text(ended);
      },
      kLimit);
  EXPECT_THAT(texts, Each(tells("rank 3", "operation")));
}

// Nodes that sum tensors of other lengths: those who meet between them say so.
TEST_F(SumsOnLevels, ADifferenceBetweenNodesIsNamed) {
  const auto texts = on_nodes(
      kTwoByTwo,
      [](std::unique_ptr<Communicator> world) -> std::string {
        const OnDevice sum = gpu::uploaded(Floats(world->rank() < 2 ? 100U : 200U, 1.0F));
        const OwnStream own;
        auto work = world->all_reduce(sum.tensor<float>(), ReduceOp::kSum, own.options());
        return code_and_message(work.has_value() ? work.value().wait() : work.error());
      },
      2);
  EXPECT_THAT(texts, Each(tells("all_reduce of 100", "all_reduce of 200")));
}

}  // namespace
}  // namespace gradwire
