// Names of transports, and what ranks that differ in them are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "adapters/launch/launch.h"
#include "comm/nccl/have_nccl.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_ranks.h"

namespace gradwire::launch {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

const EnvLookup kNothing = [](const std::string&) { return std::nullopt; };

TEST(Transports, UnknownNamesAreRefusedWithThoseThatAre) {
  for (const char* const name : {"pigeon", "", "nccl2", "NCCL"}) {
    const Status status = check_settings(name, kNothing);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << name;
    EXPECT_EQ(status.message(), "no transport '" + std::string(name) +
                                    "' between processes (auto, shm, ucx, tcp, nccl or nccl:N "
                                    "wanted)");
  }
}

TEST(Transports, ADeviceOfNcclIsANumber) {
  for (const char* const name : {"nccl:", "nccl:x", "nccl:-1", "nccl:1 ", "nccl:70000"}) {
    const Status status = check_settings(name, kNothing);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << name;
    EXPECT_EQ(status.message(),
              "transport: '" + std::string(name) + "' (nccl, or nccl:N with N from 0 on, wanted)");
  }
}

// Before anybody waits for anybody.
TEST(Transports, ABuildWithoutNcclSaysSo) {
  for (const char* const name : {"nccl", "nccl:3"}) {
    const Status status = check_settings(name, kNothing);
    if constexpr (kHaveNccl) {
      EXPECT_TRUE(status.ok()) << status.message();
    } else {
      EXPECT_EQ(status.code(), Code::kUnsupported);
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("transport nccl: no NCCL in this build"), HasSubstr("-Dnccl")));
    }
  }
}

TEST(Transports, MessagesOfNcclAreThoseOfAuto) {
  EXPECT_EQ(messages_of("nccl"), messages_of("auto"));
  EXPECT_EQ(messages_of("nccl:2"), messages_of("auto"));
  EXPECT_EQ(messages_of("tcp"), "tcp");
}

// What each of the ranks is told that take these.
std::vector<std::string> told(const std::vector<std::string>& transports) {
  const auto store = make_inproc_store();
  const int ranks = static_cast<int>(transports.size());
  return on_threads<std::string>(ranks, [&](int rank) -> std::string {
    const Rendezvous met{.rank = rank, .size = ranks, .store = store, .timeout_seconds = 20};
    const auto made = connect(met, transports[static_cast<std::size_t>(rank)], {}, kNothing, Log());
    return made.has_value() ? "connected" : std::string(made.error().message());
  });
}

TEST(Transports, RanksThatDifferAreAllTold) {
  EXPECT_THAT(told({"tcp", "auto", "tcp"}), Each(AllOf(HasSubstr("'tcp'"), HasSubstr("'auto'"))));
  if constexpr (kHaveNccl) {
    EXPECT_THAT(told({"nccl:1", "tcp"}), Each(AllOf(HasSubstr("'nccl'"), HasSubstr("'tcp'"))));
  }
}

// Whoever it is, all others hear of it, and why.
TEST(Transports, ARankWithoutADeviceIsNamedToTheOthers) {
  constexpr int kRanks = 3;
  for (const int absent : {0, 2}) {
    const TemporaryFolder folder;
    const auto texts = on_threads<std::string>(kRanks, [&](int rank) -> std::string {
      LaunchInfo info;
      info.rank = rank;
      info.size = kRanks;
      info.rendezvous = "file://" + folder.path();
      info.job = "job";
      if (rank == absent) {
        tell_absence(info, kNothing, Log(), {Code::kUnsupported, "device cuda: no device"});
        return "none: device cuda: no device";
      }
      const auto met = meet(info, kNothing, Log(), 20);
      if (!met.has_value()) return std::string(met.error().message());
      const auto made = connect(met.value(), "tcp", {}, kNothing, Log());
      return made.has_value() ? "connected" : std::string(made.error().message());
    });
    EXPECT_THAT(texts, Each(HasSubstr("none: device cuda: no device"))) << absent;
  }
}

}  // namespace
}  // namespace gradwire::launch
