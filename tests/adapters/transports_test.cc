// Names of transports, and what ranks that differ in them are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adapters/launch/launch.h"
#include "comm/nccl/have_nccl.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_ranks.h"

namespace gradwire::launch::transports_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

using ::testing::Each;

const EnvLookup kNothing = [](const std::string&) { return std::nullopt; };

TEST(Transports, UnknownNamesAreRefusedWithThoseThatAre) {
  for (const char* const name : {"pigeon", "", "nccl2", "NCCL"}) {
    EXPECT_THAT(check_settings(name, kNothing),
                fails(kInvalid, "transport", "'" + std::string(name) + "'", "auto", "shm", "ucx",
                      "tcp", "nccl", "nccl:N"));
  }
}

TEST(Transports, ADeviceOfNcclIsANumber) {
  for (const char* const name : {"nccl:", "nccl:x", "nccl:-1", "nccl:1 ", "nccl:70000"}) {
    EXPECT_THAT(check_settings(name, kNothing),
                fails(kInvalid, "transport", "'" + std::string(name) + "'", "nccl:N", "0"));
  }
}

// Before anybody waits for anybody.
TEST(Transports, ABuildWithoutNcclSaysSo) {
  for (const char* const name : {"nccl", "nccl:3"}) {
    const Status status = check_settings(name, kNothing);
    if constexpr (kHaveNccl) {
      EXPECT_TRUE(status.ok()) << status.message();
    } else {
      EXPECT_THAT(status, fails(Code::kUnsupported, "transport nccl", "NCCL", "-Dnccl"));
    }
  }
}

TEST(Transports, MessagesOfNcclAreThoseOfAuto) {
  EXPECT_EQ(messages_of("nccl"), messages_of("auto"));
  EXPECT_EQ(messages_of("nccl:2"), messages_of("auto"));
  EXPECT_EQ(messages_of("tcp"), "tcp");
}

// What each of the ranks is told that take these.
std::vector<Status> told(const std::vector<std::string>& transports) {
  const auto store = make_inproc_store();
  const int ranks = static_cast<int>(transports.size());
  return on_threads<Status>(ranks, [&](int rank) -> Status {
    const Rendezvous met{.rank = rank, .size = ranks, .store = store, .timeout_seconds = 20};
    const auto made = connect(met, transports[static_cast<std::size_t>(rank)], {}, kNothing, Log());
    return made.has_value() ? Status() : made.error();
  });
}

// One rank of the job takes checksums: none waits for it.
TEST(Transports, RanksThatDifferInChecksumsAreAllTold) {
  const auto store = make_inproc_store();
  const auto told = on_threads<Status>(3, [&](int rank) -> Status {
    const Rendezvous met{.rank = rank, .size = 3, .store = store, .timeout_seconds = 20};
    CommunicatorOptions options;
    options.checksums = rank == 2;
    const auto made = connect(met, "tcp", options, kNothing, Log());
    return made.has_value() ? Status() : made.error();
  });
  EXPECT_THAT(told, Each(fails(Code::kRankMismatch, "GRADWIRE_CHECKSUM", "'1' on rank 2")));
}

// A store through which its rank says that it has no UCX.
class WithoutUcx : public KeyValueStore {
 public:
  explicit WithoutUcx(std::shared_ptr<KeyValueStore> store) : store_(std::move(store)) {}
  Status set(std::string_view key, ConstByteSpan value, Deadline deadline) override {
    static constexpr std::string_view kNo = "no";
    const bool asked = key.starts_with("everywhere/ucx/");
    return store_->set(key, asked ? std::as_bytes(std::span(kNo)) : value, deadline);
  }
  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) override {
    return store_->get(key, deadline);
  }

 private:
  std::shared_ptr<KeyValueStore> store_;
};

// Messages go over tcp because rank 1 has no UCX: rank 0, which has it, uses tcp's variables too.
// Every Linux kernel has reno.
TEST(Transports, AJobThatFallsBackToTcpUsesItsVariables) {
  const EnvLookup reno = [](const std::string& name) -> std::optional<std::string> {
    return name == "GRADWIRE_TCP_CONGESTION" ? std::optional<std::string>("reno") : std::nullopt;
  };
  const auto store = make_inproc_store();
  const auto said = on_threads<std::string>(2, [&](int rank) -> std::string {
    Rendezvous met{.rank = rank, .size = 2, .store = store, .timeout_seconds = 20};
    if (rank == 1) met.store = std::make_shared<WithoutUcx>(store);
    CommunicatorOptions options;
    options.node = std::to_string(rank);  // no shared memory
    const auto made = connect(met, "auto", options, reno, Log());
    return made.has_value() ? transport_of(*made.value()) : std::string(made.error().message());
  });
  EXPECT_THAT(said, Each(::testing::HasSubstr("reno")));
}

TEST(Transports, RanksThatDifferAreAllTold) {
  EXPECT_THAT(told({"tcp", "auto", "tcp"}), Each(fails(Code::kRankMismatch, "tcp", "auto")));
  if constexpr (kHaveNccl) {
    EXPECT_THAT(told({"nccl:1", "tcp"}), Each(fails(Code::kRankMismatch, "nccl", "tcp")));
  }
}

// Whoever it is, all others hear of it, and why.
TEST(Transports, ARankWithoutADeviceIsNamedToTheOthers) {
  constexpr int kRanks = 3;
  for (const int absent : {0, 2}) {
    const TemporaryFolder folder;
    const auto told = on_threads<Status>(kRanks, [&](int rank) -> Status {
      LaunchInfo info;
      info.rank = rank;
      info.size = kRanks;
      info.rendezvous = "file://" + folder.path();
      info.job = "job";
      if (rank == absent) {
        const Status why(Code::kUnsupported, "device cuda: no device");
        tell_absence(info, kNothing, Log(), why);
        return why;
      }
      const auto met = meet(info, kNothing, Log(), 20);
      if (!met.has_value()) return met.error();
      const auto made = connect(met.value(), "tcp", {}, kNothing, Log());
      return made.has_value() ? Status() : made.error();
    });
    for (int rank = 0; rank < kRanks; ++rank) {
      const Code code = rank == absent ? Code::kUnsupported : Code::kRankMismatch;
      EXPECT_THAT(told[static_cast<std::size_t>(rank)], fails(code, "device cuda: no device"))
          << rank << " of " << absent;
    }
  }
}

}  // namespace
}  // namespace gradwire::launch::transports_test
