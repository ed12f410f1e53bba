// Tasks under virtual time: by hand, and random ones against the slow run of tests/reference.
#include "timeline/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/reference/timeline_reference.h"
#include "tests/support/fails.h"

namespace gradwire::timeline_test {
namespace {

using Spans = std::vector<TimelineSpan>;

Timeline run(const std::vector<TimelineTask>& tasks, int resources) {
  auto result = run_timeline(tasks, resources);
  EXPECT_TRUE(result.has_value()) << result.error().message();
  return result.has_value() ? std::move(result).value() : Timeline{};
}

TEST(Timeline, TasksTakeTurnsAtAResource) {
  const Timeline all = run({{.ticks = 3, .resources = {0}}, {.ticks = 2, .resources = {0}}}, 1);
  EXPECT_EQ(all.spans, (Spans{{0, 3}, {3, 5}}));
  EXPECT_EQ(all.makespan, 5);
  EXPECT_EQ(all.busy, (std::vector<std::int64_t>{5}));
}

TEST(Timeline, ReadyTimeComesBeforeOrderAndOrderBeforeNumber) {
  // 2 is ready at 1, 1 at 2 (although its order is less); 3 and 4 are ready at once.
  const Timeline all = run({{.ticks = 4, .resources = {0}},
                            {.ticks = 1, .order = 0, .resources = {0}, .after = {6}},
                            {.ticks = 1, .order = 9, .resources = {0}, .after = {5}},
                            {.ticks = 1, .order = 8, .resources = {1}},
                            {.ticks = 1, .order = 7, .resources = {1}},
                            {.ticks = 1},
                            {.ticks = 2}},
                           2);
  EXPECT_EQ(all.spans[2], (TimelineSpan{4, 5}));
  EXPECT_EQ(all.spans[1], (TimelineSpan{5, 6}));
  EXPECT_EQ(all.spans[4], (TimelineSpan{0, 1}));
  EXPECT_EQ(all.spans[3], (TimelineSpan{1, 2}));
}

TEST(Timeline, LatencyOccupiesNothing) {
  const Timeline all = run(
      {{.ticks = 2, .latency = 5, .resources = {0}}, {.ticks = 2, .latency = 5, .resources = {0}}},
      1);
  EXPECT_EQ(all.spans, (Spans{{0, 7}, {2, 9}}));
}

TEST(Timeline, WhoWaitsHoldsNothing) {
  // Task 1 waits for resource 0 and does not keep task 2 from resource 1.
  const Timeline all = run({{.ticks = 4, .resources = {0}},
                            {.ticks = 1, .resources = {0, 1}},
                            {.ticks = 3, .resources = {1}}},
                           2);
  EXPECT_EQ(all.spans, (Spans{{0, 4}, {4, 5}, {0, 3}}));
}

TEST(Timeline, InstantTasksPassOnInTheSameRound) {
  // Task 3 is ready with task 0, by way of two instant ones, and comes first by its order.
  const Timeline all = run({{.ticks = 1, .order = 2, .resources = {0}},
                            {.instant = true},
                            {.after = {1}, .instant = true},
                            {.ticks = 1, .order = 1, .resources = {0}, .after = {2}}},
                           1);
  EXPECT_EQ(all.spans[3], (TimelineSpan{0, 1}));
  EXPECT_EQ(all.spans[0], (TimelineSpan{1, 2}));
}

TEST(Timeline, NothingTakesNoTime) {
  EXPECT_EQ(run({}, 0).makespan, 0);
  EXPECT_EQ(run({{}, {.after = {0}}}, 0).makespan, 0);
}

std::vector<TimelineTask> random_tasks(std::mt19937& random, int count, int resources) {
  const auto below = [&random](int end) {
    return static_cast<int>(random() % static_cast<unsigned>(end));
  };
  std::vector<TimelineTask> tasks(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    TimelineTask& task = tasks[static_cast<std::size_t>(i)];
    for (int other = 0; other < i; ++other) {
      if (below(4) == 0 && task.after.size() < 3) task.after.push_back(other);
    }
    task.order = below(3);
    if (below(6) == 0) {
      task.instant = true;
      continue;
    }
    task.ticks = below(4);
    task.latency = below(2) * below(3);
    for (int resource = 0; resource < resources; ++resource) {
      if (below(3) == 0) task.resources.push_back(resource);
    }
  }
  return tasks;
}

TEST(Timeline, RandomTasksAsTheSlowOneRunsThem) {
  std::mt19937 random(20);
  for (int trial = 0; trial < 400; ++trial) {
    const auto tasks = random_tasks(random, 1 + trial % 24, 1 + trial % 4);
    const Timeline all = run(tasks, 4);
    EXPECT_EQ(all.spans, reference::SlowTimeline(tasks).run()) << "trial " << trial;
  }
}

TEST(Timeline, BadTasksAreNamed) {
  EXPECT_THAT(run_timeline({{}, {.ticks = -1}}, 0).error(),
              fails(Code::kInvalidArgument, "task 1", "-1", "0 or more"));
  EXPECT_THAT(run_timeline({{.resources = {2}}}, 2).error(),
              fails(Code::kInvalidArgument, "task 0", "0 to 1"));
  EXPECT_THAT(run_timeline({{.resources = {1, 0, 1}}}, 2).error(),
              fails(Code::kInvalidArgument, "task 0", "twice"));
  EXPECT_THAT(run_timeline({{.after = {1}}}, 0).error(),
              fails(Code::kInvalidArgument, "task 0", "not there"));
  EXPECT_THAT(run_timeline({{}, {.after = {2}}, {.after = {1}}}, 0).error(),
              fails(Code::kInvalidArgument, "task 1", "waits for itself"));
  EXPECT_THAT(run_timeline({{.ticks = 1, .instant = true}}, 0).error(),
              fails(Code::kInvalidArgument, "task 0", "instant"));
  EXPECT_THAT(
      run_timeline({{.ticks = std::int64_t{1} << 61}, {.ticks = std::int64_t{1} << 61}}, 0).error(),
      fails(Code::kInvalidArgument, "task 1", "2^62"));
}

}  // namespace
}  // namespace gradwire::timeline_test
