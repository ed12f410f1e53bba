// A rank that ends while the others connect to it. UCX 1.13.1 asserts that no wire is given up
// while it is being set up; a rank must say what happened, not abort.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"
#include "comm/ucx/settings.h"
#include "comm/ucx/ucx_transport.h"

namespace gradwire::ucx_connect_test {
namespace {

constexpr int kRanks = 4;
constexpr int kLostRank = 1;

// Ends its process by `signal` once it has answered for so many keys: with the table, for one.
class EndingStore final : public KeyValueStore {
 public:
  EndingStore(std::shared_ptr<KeyValueStore> inner, int answers, int signal)
      : inner_(std::move(inner)), answers_(answers), signal_(signal) {}
  Status set(std::string_view key, ConstByteSpan value, Deadline deadline) override {
    return inner_->set(key, value, deadline);
  }
  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) override {
    auto value = inner_->get(key, deadline);
    if (--answers_ == 0) raise(signal_);
    return value;
  }

 private:
  std::shared_ptr<KeyValueStore> inner_;
  int answers_;
  int signal_;
};

// What is wrong with how a survivor's start ended; empty if nothing is.
std::string play(int rank, const std::string& directory, int signal) {
  auto store = make_file_store(directory);
  if (!store.has_value()) return std::string(store.error().message());
  std::shared_ptr<KeyValueStore> keys = store.value();
  if (rank == kLostRank) keys = std::make_shared<EndingStore>(keys, 1, signal);
  const auto transport = make_ucx_transport(
      {.rank = rank, .size = kRanks, .job = "connect", .store = keys, .timeout_seconds = 20},
      {.heartbeat_seconds = 0.25, .liveness_seconds = 2, .log = {}});
  if (transport.has_value()) return "it connected";
  const Status& why = transport.error();
  const bool named = why.message().find("rank ") != std::string::npos;
  if (why.code() == Code::kPeerLost && named) return "";
  return format("kPeerLost with a rank wanted: %s", std::string(why.message()).c_str());
}

// UCX 1.13.1 aborts by an assertion of its own (tcp_ep.c:478) when a connection is refused just as
// another is made: 4 of 312 survivors on a busy machine. Of the 24 of eight jobs more than four are
// then not to be expected in 10,000 runs; what aborts survivors always, or in one job of two, is
// seen.
constexpr int kMostAborted = 4;

// Adds to `aborted` the survivors that UCX 1.13.1 aborted.
void who_ends(int signal, int& aborted) {
  std::string directory = (std::filesystem::temp_directory_path() / "gw-connect-XXXXXX").string();
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      alarm(60);
      const std::string fault = play(rank, directory, signal);
      if (!fault.empty()) std::fprintf(stderr, "rank %d: %s\n", rank, fault.c_str());
      _exit(fault.empty() ? 0 : 1);
    }
    ranks.push_back(pid);
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == kLostRank) continue;
    int status = 0;
    ASSERT_EQ(waitpid(ranks[static_cast<std::size_t>(rank)], &status, 0),
              ranks[static_cast<std::size_t>(rank)]);
    if (ucx::library_version() == "1.13.1" && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) {
      ++aborted;
      continue;
    }
    EXPECT_EQ(status, 0) << "rank " << rank;
  }
  kill(ranks[kLostRank], SIGKILL);
  waitpid(ranks[kLostRank], nullptr, 0);
  std::filesystem::remove_all(directory);
}

void expect_few(int aborted, int most) {
  std::printf("survivors that UCX aborted: %d (at most %d)\n", aborted, most);
  EXPECT_LE(aborted, most);
}

TEST(UcxConnect, ARankThatIsKilledIsNamed) {
  int aborted = 0;
  for (int round = 0; round < 8; ++round) who_ends(SIGKILL, aborted);
  expect_few(aborted, kMostAborted);
}

TEST(UcxConnect, ARankThatIsStoppedIsNamed) {
  int aborted = 0;
  who_ends(SIGSTOP, aborted);
  expect_few(aborted, 1);
}

}  // namespace
}  // namespace gradwire::ucx_connect_test
