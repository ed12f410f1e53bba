// Which store tokens are in, and under which names, when ranks meet.
#include "adapters/launch/sides.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_ranks.h"

namespace gradwire::launch::sides_test {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::Eq;

constexpr int kRanks = 3;

EnvLookup lookup(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

// Ranks of job "job" meet, and each asks for one token for itself: who has it, as each is told.
std::vector<std::string> ask_for_a_token(const std::string& folder, const std::string& life) {
  const auto met = make_inproc_store();
  return on_threads<std::string>(kRanks, [&](int rank) -> std::string {
    const Rendezvous rendezvous{
        .rank = rank, .size = kRanks, .job = "job", .store = met, .timeout_seconds = 20};
    CommunicatorOptions options;
    const Status chosen = choose_side_rule(
        options, rendezvous, lookup({{"GRADWIRE_LAUNCHER_STORE", "file://" + folder}}));
    if (!chosen.ok()) return std::string(chosen.message());
    const auto holder =
        options.take_token("shrink/1", life + std::to_string(rank), deadline_in(20));
    return holder.has_value() ? holder.value() : std::string(holder.error().message());
  });
}

TEST(Sides, OfOneMeetingOneRankHasTheToken) {
  const TemporaryFolder folder;
  const std::vector<std::string> holders = ask_for_a_token(folder.path(), "a");
  EXPECT_THAT(holders, Each(Eq(holders.front())));
  EXPECT_THAT(holders.front(), AnyOf("a0", "a1", "a2"));
}

// A job that is run again in one store, or ranks that make a second communicator.
TEST(Sides, ALaterMeetingOfTheSameRanksHasTokensOfItsOwn) {
  const TemporaryFolder folder;
  (void)ask_for_a_token(folder.path(), "a");
  const std::vector<std::string> holders = ask_for_a_token(folder.path(), "b");
  EXPECT_THAT(holders, Each(Eq(holders.front())));
  EXPECT_THAT(holders.front(), AnyOf("b0", "b1", "b2"));
}

TEST(Sides, WithoutALaunchersStoreThereAreNoTokens) {
  CommunicatorOptions options;
  const Rendezvous rendezvous{.rank = 0, .size = 2, .store = make_inproc_store()};
  ASSERT_TRUE(choose_side_rule(options, rendezvous, lookup({})).ok());
  EXPECT_FALSE(options.take_token);
}

TEST(Sides, ARankWhoseFirstSaysNothingIsToldWhatItWaitsFor) {
  const TemporaryFolder folder;
  const Rendezvous rendezvous{
      .rank = 1, .size = 2, .store = make_inproc_store(), .timeout_seconds = 0.05};
  CommunicatorOptions options;
  EXPECT_THAT(choose_side_rule(options, rendezvous,
                               lookup({{"GRADWIRE_LAUNCHER_STORE", "file://" + folder.path()}})),
              fails(Code::kTimedOut, "sides/meeting"));
}

TEST(Sides, AValueThatIsNoFolderIsRefused) {
  for (const char* const seen : {"file://", "tcp://host:1", "folder"}) {
    CommunicatorOptions options;
    EXPECT_THAT(choose_side_rule(options, {}, lookup({{"GRADWIRE_LAUNCHER_STORE", seen}})),
                fails(Code::kInvalidArgument, "GRADWIRE_LAUNCHER_STORE",
                      "'" + std::string(seen) + "'", "file://DIRECTORY"));
  }
}

}  // namespace
}  // namespace gradwire::launch::sides_test
