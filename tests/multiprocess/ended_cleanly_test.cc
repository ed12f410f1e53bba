// What tests over processes are judged by must refuse ranks that crashed, that did not end and that
// were never started, none of which says a word.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <memory>
#include <string>

#include "tests/support/ended_cleanly.h"
#include "tests/support/process_ranks.h"

namespace gradwire {
namespace {

using testing::HasSubstr;
using testing::Not;

// Two ranks, of which rank 1 does as it is told.
ProcessOutcomes two(double limit_seconds, const std::function<std::string()>& rank_one) {
  return on_processes(
      2, {.deadline_seconds = 5}, limit_seconds,
      [&](std::unique_ptr<Communicator> world) {
        return world->rank() == 1 ? rank_one() : std::string();
      },
      {}, "tcp");
}

TEST(EndedCleanly, TakesRanksThatEndWithoutAWordAndCountsThem) {
  const auto outcomes = two(60, [] { return std::string(); });
  EXPECT_THAT(outcomes, ended_cleanly(2));
  EXPECT_THAT(outcomes, Not(ended_cleanly(1)));
  EXPECT_THAT(outcomes, Not(ended_cleanly(3)));
  EXPECT_THAT(outcomes, Not(ended_saying(2, "ok")));
}

TEST(EndedCleanly, RefusesARankThatCrashedAndSaidNothing) {
  for (const int signal_number : {SIGSEGV, SIGABRT, SIGKILL}) {
    const auto outcomes = two(60, [&] {
      std::signal(signal_number, SIG_DFL);  // sanitizers have handlers of their own
      std::raise(signal_number);
      return std::string();
    });
    EXPECT_THAT(outcomes, Not(ended_cleanly(2)));
    ASSERT_TRUE(outcomes.has_value());
    EXPECT_EQ(WTERMSIG(outcomes.value()[1].wait_status), signal_number);
    EXPECT_THAT(outcomes, survivors_ended_saying(2, 1, ""));
    EXPECT_THAT(outcomes, Not(survivors_ended_saying(2, 0, "")));
  }
}

TEST(EndedCleanly, RefusesAnotherStatusAndAnotherText) {
  EXPECT_THAT(two(60, []() -> std::string { _exit(3); }), Not(ended_cleanly(2)));
  const auto outcomes = two(60, [] { return std::string("a fault"); });
  EXPECT_THAT(outcomes, Not(ended_cleanly(2)));
  EXPECT_THAT(outcomes, ended_saying({"", HasSubstr("fault")}));
}

TEST(EndedCleanly, RefusesARankThatDoesNotEnd) {
  EXPECT_THAT(two(2,
                  [] {
                    pause();
                    return std::string();
                  }),
              Not(ended_cleanly(2)));
}

// Without descriptors no rank can say anything: an error, not an empty list of outcomes.
TEST(EndedCleanly, RefusesRanksThatCannotBeStarted) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest = dup(STDERR_FILENO);  // one is left, a pipe takes two
  ASSERT_GE(lowest, 0);
  close(lowest);
  const rlimit few{static_cast<rlim_t>(lowest) + 1, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto outcomes = two(10, [] { return std::string(); });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(outcomes.has_value());
  EXPECT_EQ(outcomes.error().code(), Code::kInternal);
  EXPECT_THAT(outcomes, Not(ended_cleanly(0)));
}

}  // namespace
}  // namespace gradwire
