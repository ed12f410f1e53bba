// create_group() of many ranks as threads: every axis of a mesh, and lists that differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/elements.h"
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
