// create_group() of many ranks as threads: every axis of a mesh, and lists that differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/elements.h"
#include "comm/inproc/inproc_transport.h"
#include "gradwire/communicator.h"
#include "tests/support/fails.h"
#include "tests/support/thread_ranks.h"

namespace gradwire::create_group_test {
namespace {

using ::testing::Each;

constexpr int kSide = 4;
constexpr int kAxes = 3;
constexpr int kRanks = kSide * kSide * kSide;

int stride_of(int axis) { return axis == 0 ? 1 : axis == 1 ? kSide : kSide * kSide; }

// The ranks that differ from `rank` in that coordinate alone.
std::vector<int> axis_ranks(int rank, int axis) {
  const int stride = stride_of(axis);
  const int first = rank - rank / stride % kSide * stride;
  std::vector<int> ranks;
  for (int i = 0; i < kSide; ++i) ranks.push_back(first + i * stride);
  return ranks;
}

std::string work_on_a_mesh(Communicator& world) {
  std::vector<std::unique_ptr<Communicator>> groups;
  for (int axis = 0; axis < kAxes; ++axis) {
    auto group = world.create_group(axis_ranks(world.rank(), axis));
    if (!group.has_value()) return std::string(group.error().message());
    groups.push_back(std::move(group).value());
  }
  // An operation on every axis at once.
  std::array<std::vector<float>, kAxes> data;
  std::vector<Work> works;
  for (std::size_t axis = 0; axis < data.size(); ++axis) {
    data[axis].assign(1000, static_cast<float>(world.rank()));
    auto work = groups[axis]->all_reduce(view_of(std::span(data[axis])), ReduceOp::kSum);
    if (!work.has_value()) return std::string(work.error().message());
    works.push_back(std::move(work).value());
  }
  for (Work& work : works) {
    if (const Status status = work.wait(); !status.ok()) return std::string(status.message());
  }
  for (std::size_t axis = 0; axis < data.size(); ++axis) {
    float want = 0;
    for (const int r : axis_ranks(world.rank(), static_cast<int>(axis))) {
      want += static_cast<float>(r);
    }
    if (data[axis] != std::vector<float>(1000, want)) return "wrong sum";
  }
  return "";
}

TEST(CreateGroup, EveryAxisOfAMeshHasItsGroups) {
  auto worlds = make_inproc_communicators(kRanks, {.deadline_seconds = 60});
  ASSERT_TRUE(worlds.has_value());
  EXPECT_THAT(
      on_threads<std::string>(
          kRanks,
          [&](int r) { return work_on_a_mesh(*worlds.value()[static_cast<std::size_t>(r)]); }),
      Each(""));
}

// A rank is killed while groups of all axes work: its own groups fail, on every rank that is in one
// of them, and the others go on.
std::string go_on_without(Communicator& world, int victim, std::barrier<>& made,
                          const std::function<void()>& kill) {
  const GroupOptions options{.fails_alone = true};
  std::vector<std::unique_ptr<Communicator>> groups;
  for (int axis = 0; axis < kAxes; ++axis) {
    auto group = world.create_group(axis_ranks(world.rank(), axis), options);
    if (!group.has_value()) return std::string(group.error().message());
    groups.push_back(std::move(group).value());
  }
  made.arrive_and_wait();  // all have all their groups
  if (world.rank() == victim) {
    kill();
    return "";
  }
  for (int axis = 0; axis < kAxes; ++axis) {
    Communicator& group = *groups[static_cast<std::size_t>(axis)];
    const std::vector<int> members = axis_ranks(world.rank(), axis);
    const bool hit = std::ranges::find(members, victim) != members.end();
    // Until the loss is known everywhere, and well beyond.
    for (int i = 0; i < 200; ++i) {
      std::vector<float> data(100, 1.0f);
      auto work = group.all_reduce(view_of(std::span(data)), ReduceOp::kSum);
      const Status status = work.has_value() ? work.value().wait() : work.error();
      if (!hit && !status.ok()) return "a group without it: " + std::string(status.message());
      if (!hit && data != std::vector<float>(100, 4.0f)) return "wrong sum";
      if (!hit) continue;
      if (status.ok()) return "a sum with the dead";
      if (status.message().find(std::to_string(victim)) == std::string_view::npos)
        return "who is lost? " + std::string(status.message());
      break;
    }
  }
  // The job's own group has it, and says so; nobody can make groups from it any more.
  auto work = world.barrier();
  const Status status = work.has_value() ? work.value().wait() : work.error();
  if (status.code() != Code::kPeerLost) return "the world: " + std::string(status.message());
  return "";
}

TEST(CreateGroup, GroupsWithoutADeadRankGoOnWhereTheyFailAlone) {
  auto transports = make_inproc_transports(kRanks);
  ASSERT_TRUE(transports.has_value());
  constexpr int kVictim = 21;
  std::vector<std::unique_ptr<Communicator>> worlds;
  Transport& victim = *transports.value()[kVictim];
  for (auto& transport : transports.value()) {
    auto world = make_communicator(std::move(transport), {.deadline_seconds = 60});
    ASSERT_TRUE(world.has_value());
    worlds.push_back(std::move(world).value());
  }
  std::barrier<> made(kRanks);
  EXPECT_THAT(on_threads<std::string>(kRanks,
                                      [&](int r) {
                                        return go_on_without(*worlds[static_cast<std::size_t>(r)],
                                                             kVictim, made,
                                                             [&] { kill_rank(victim); });
                                      }),
              Each(""));
}

// How many threads share a reduction does not show in its bits.
TEST(ReductionThreads, GiveTheBitsOfOne) {
  constexpr std::size_t kElems = 300'001;
  constexpr int kPair = 2;
  std::vector<std::vector<float>> sums;
  for (const int threads : {1, 3}) {
    auto worlds =
        make_inproc_communicators(kPair, {.deadline_seconds = 60, .reduction_threads = threads});
    ASSERT_TRUE(worlds.has_value());
    std::vector<float> sum;
    const auto faults = on_threads<std::string>(kPair, [&](int r) -> std::string {
      std::vector<float> data(kElems);
      for (std::size_t i = 0; i < kElems; ++i) {
        data[i] = static_cast<float>(i % 1013) / static_cast<float>(3 + r);
      }
      auto work = worlds.value()[static_cast<std::size_t>(r)]->all_reduce(view_of(std::span(data)),
                                                                          ReduceOp::kSum);
      const Status status = work.has_value() ? work.value().wait() : work.error();
      if (r == 0) sum = data;
      return status.ok() ? "" : std::string(status.message());
    });
    EXPECT_THAT(faults, Each(""));
    sums.push_back(std::move(sum));
  }
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_NE(sums[0][1], 0.0f);
}

TEST(ReductionThreads, NoneIsRefused) {
  const auto worlds = make_inproc_communicators(2, {.reduction_threads = 0});
  EXPECT_THAT(worlds.error(), fails(Code::kInvalidArgument, "reduction_threads 0", "1 to 1024"));
}

// The same ranks in another order.
TEST(CreateGroup, ListsThatDifferAreAMismatch) {
  auto worlds = make_inproc_communicators(2, {.deadline_seconds = 10});
  ASSERT_TRUE(worlds.has_value());
  const auto said = on_threads<Status>(2, [&](int r) {
    return worlds.value()[static_cast<std::size_t>(r)]->create_group(std::array{r, 1 - r}).error();
  });
  EXPECT_THAT(said, Each(fails(Code::kRankMismatch, "create_group", "another list", "2 ranks")));
}

TEST(CreateGroup, AMemberThatDoesNotComeIsNamed) {
  auto worlds = make_inproc_communicators(3, {.deadline_seconds = 0.3});
  ASSERT_TRUE(worlds.has_value());
  const Status late = worlds.value()[0]->create_group(std::array{0, 2}).error();
  EXPECT_THAT(late, fails(Code::kTimedOut, "create_group", "rank 2"));
}

}  // namespace
}  // namespace gradwire::create_group_test
