// Ranks that are killed at every place of a checkpoint: what has a checkpoint's name is complete,
// and the next job goes on from it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/checkpoint_parts.h"
#include "tests/support/ended_cleanly.h"
#include "tests/support/names.h"
#include "tests/support/process_ranks.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::testing {
namespace {

constexpr int kRanks = 3;
constexpr int kAll = -1;
constexpr double kPatience = 60;  // seconds; far above anything that is promised

struct Crash {
  std::string place;
  int victim;  // the rank that comes to the place and dies there; kAll: with all others
  int comes;   // the rank that comes to the place
};

class CheckpointCrash : public ::testing::Test {
 protected:
  CheckpointsOptions options() const {
    CheckpointsOptions options;
    options.folder = folder_.path() + "/run";
    options.seconds = kPatience;
    return options;
  }

  // A job that resumes, as it says in `resumed`, and saves at `step` until it crashes.
  ProcessOutcomes run(const std::string& resumed, std::int64_t step, const Crash* crash) {
    const ProcessCount there;
    const auto program = [&](std::unique_ptr<Communicator> world) -> std::string {
      const auto last = Checkpoints(*world, options()).last_step();
      if (!last.has_value()) return std::string(last.error().message());
      const std::string seen = std::to_string(last.value().value_or(-1));
      if (seen != resumed) return "resumed from " + seen + "; " + resumed + " wanted";
      CheckpointsOptions own = options();
      if (crash != nullptr && world->rank() == crash->comes) {
        own.observer = [&](std::string_view place) {
          if (place != crash->place) return;
          there.come();
          if (crash->victim != kAll) raise(SIGKILL);
          pause();  // all are about to be killed
        };
      }
      return std::string(save_job(*world, own, step).message());
    };
    const auto kill_all = [&](const std::vector<pid_t>& pids) {
      if (crash == nullptr || crash->victim != kAll) return;
      EXPECT_TRUE(there.await(1, kPatience)) << "nobody came to '" << crash->place << "'";
      for (const pid_t pid : pids) kill(pid, SIGKILL);
    };
    return on_processes(kRanks, {}, kPatience, program, kill_all, "tcp");
  }

  TemporaryFolder folder_;
};

std::vector<Crash> crashes() {
  std::vector<Crash> all;
  for (const char* place :
       {"folder made", "file begun", "file half written", "file written", "file synced"}) {
    for (int rank = 0; rank < kRanks; ++rank) all.push_back({place, rank, rank});
    all.push_back({place, kAll, 0});
    all.push_back({place, kAll, 1});
  }
  for (const char* place : {"manifest written", "manifest synced", "renamed", "about to end"}) {
    all.push_back({place, 0, 0});
    all.push_back({place, kAll, 0});
  }
  all.push_back({"about to end", 2, 2});
  return all;
}

TEST_F(CheckpointCrash, LeavesTheLastCompleteOneAtEveryPlace) {
  ASSERT_THAT(run("-1", 10, nullptr), ended_saying(kRanks, "ok"));
  std::int64_t last = 10;
  std::int64_t step = 10;
  for (const Crash& crash : crashes()) {
    step += 10;
    SCOPED_TRACE(crash.place + ", rank " + std::to_string(crash.victim));
    const auto outcomes = run(std::to_string(last), step, &crash);
    // A rank that had all it wanted before the other one died is content.
    ::testing::Matcher<std::string> survivor = tells("rank " + std::to_string(crash.victim));
    if (crash.place == "about to end") survivor = ::testing::AnyOf("ok", survivor);
    const auto dies = [&](std::size_t rank) {
      return crash.victim == kAll || crash.victim == static_cast<int>(rank);
    };
    std::vector<EndedMatcher::Text> texts(kRanks, survivor);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      if (dies(rank)) texts[rank].reset();
    }
    ASSERT_THAT(outcomes, ended_saying(texts));
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      const ProcessOutcome& outcome = outcomes.value()[rank];
      const bool killed = outcome.ended && WIFSIGNALED(outcome.wait_status) &&
                          WTERMSIG(outcome.wait_status) == SIGKILL;
      EXPECT_TRUE(!dies(rank) || killed) << "rank " << rank << " said " << outcome.text;
    }
    const bool renamed =
        crash.comes == 0 && (crash.place == "renamed" || crash.place == "about to end");
    const std::string now = last_of(options().folder);
    if (crash.place == "about to end" && crash.comes != 0) {
      EXPECT_TRUE(now == std::to_string(last) || now == std::to_string(step)) << now;
    } else {
      EXPECT_EQ(now, std::to_string(renamed ? step : last));
    }
    last = now == std::to_string(step) ? step : last;
    ASSERT_FALSE(HasFailure());
  }
  step += 10;
  EXPECT_THAT(run(std::to_string(last), step, nullptr), ended_saying(kRanks, "ok"));
  int left = 0;
  for (const auto& entry : std::filesystem::directory_iterator(options().folder)) {
    EXPECT_EQ(entry.path().filename().string().substr(0, 5), "step-") << entry.path();
    ++left;
  }
  EXPECT_EQ(left, 2);
}

}  // namespace
}  // namespace gradwire::testing
