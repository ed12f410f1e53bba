// Jobs whose processes may have few descriptors open: they get more where the system allows that,
// and say what is missing where not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "base/elements.h"
#include "tests/laws/communicator/communicator_process_laws.h"
#include "tests/support/ended_cleanly.h"
#include "tests/support/names.h"
#include "tests/support/process_ranks.h"

namespace gradwire {
namespace {

constexpr int kRanks = 32;
constexpr rlim_t kFew = 64;
// Of fewer ranks, of which each holds what the ones before it have open: not one can begin.
constexpr int kFewRanks = 16;
constexpr rlim_t kTooFew = 36;

std::string sum(Communicator& world) {
  std::vector<float> data(100, 1.0f);
  auto work = world.all_reduce(view_of(std::span(data)), ReduceOp::kSum);
  const Status status = work.has_value() ? work.value().wait() : work.error();
  if (!status.ok()) return std::string(status.message());
  return data == std::vector<float>(100, float{kRanks}) ? "" : "a wrong sum";
}

TEST_P(CommunicatorProcessDescriptors, AreRaisedToWhatTheJobNeeds) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  // Meson counts a skipped case as passed, so a machine that cannot run this law fails it by name.
  ASSERT_GE(before.rlim_max, rlim_t{1024}) << "the hard limit of RLIMIT_NOFILE";
  rlimit few = before;
  few.rlim_cur = kFew;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto outcomes = on_processes(
      kRanks, {.deadline_seconds = 60}, 200,
      [](std::unique_ptr<Communicator> world) { return sum(*world); }, {}, GetParam().backend);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(outcomes, ended_cleanly(kRanks));
}

// The hard limit cannot be raised again: in a process of its own.
TEST_P(CommunicatorProcessDescriptors, ThatCannotBeHadAreNamed) {
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    alarm(200);
    const rlimit few{kTooFew, kTooFew};
    if (setrlimit(RLIMIT_NOFILE, &few) != 0) _exit(100);
    const auto outcomes = on_processes(
        kFewRanks, {.deadline_seconds = 60}, 150,
        [](std::unique_ptr<Communicator> world) { return sum(*world); }, {}, GetParam().backend);
    const auto named = ended_saying(kFewRanks, tells("RLIMIT_NOFILE", std::to_string(kTooFew)));
    const bool all = named.Matches(outcomes);
    if (!all) std::fprintf(stderr, "%s\n", testing::PrintToString(outcomes).c_str());
    _exit(all ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "ranks that did not say why, or crashed";
}

}  // namespace
}  // namespace gradwire
