#include "tests/laws/transport/process_backend.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace gradwire::laws {
namespace {

std::string new_directory() {
  std::string name = (std::filesystem::temp_directory_path() / "gw-laws-XXXXXX").string();
  return mkdtemp(name.data()) == nullptr ? std::string() : name;
}

// The whole life of a rank's process. Its exit status says whether its expectations held.
[[noreturn]] void play(int rank, int size, const std::string& directory, const MakeTransport& make,
                       const RankBody& body) {
  auto store = make_file_store(directory);
  EXPECT_TRUE(store.has_value()) << store.error().message();
  Rendezvous rendezvous{.rank = rank, .size = size, .job = "laws", .store = nullptr};
  rendezvous.timeout_seconds = 60;
  if (store.has_value()) rendezvous.store = store.value();
  auto transport = make(rendezvous);
  EXPECT_TRUE(transport.has_value()) << transport.error().message();
  if (transport.has_value()) body(std::move(transport).value());
  std::fflush(nullptr);
  _exit(testing::Test::HasFailure() ? 1 : 0);
}

// How a rank's process ended; nullopt if it has not by the deadline.
std::optional<int> reap(pid_t pid, Deadline until) {
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() >= until) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return status;
}

void expect_fate(int rank, Fate fate, const std::optional<int>& status) {
  if (fate == Fate::kStopped) {
    EXPECT_FALSE(status.has_value()) << "rank " << rank << " was to stay stopped";
  } else if (!status) {
    ADD_FAILURE() << "rank " << rank << " did not end in time";
  } else if (fate == Fate::kKilled) {
    EXPECT_TRUE(WIFSIGNALED(*status) && WTERMSIG(*status) == SIGKILL) << "rank " << rank;
  } else {
    EXPECT_TRUE(WIFEXITED(*status) && WEXITSTATUS(*status) == 0)
        << "rank " << rank << ": wait status " << *status;
  }
}

void run_processes(const MakeTransport& make, int size, const RankBody& body,
                   const std::map<int, Fate>& fates, double limit_seconds) {
  const std::string directory = new_directory();
  ASSERT_FALSE(directory.empty());
  std::fflush(nullptr);
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) play(rank, size, directory, make, body);
    ranks.push_back(pid);
  }
  const Deadline until = deadline_in(limit_seconds);
  const auto fate_of = [&](int rank) {
    const auto found = fates.find(rank);
    return found == fates.end() ? Fate::kReturns : found->second;
  };
  // Killed ranks first: a launcher reaps. Stopped ones last: nothing else ends them.
  for (const Fate fate : {Fate::kKilled, Fate::kReturns, Fate::kStopped}) {
    for (int rank = 0; rank < size; ++rank) {
      if (fate_of(rank) != fate) continue;
      const pid_t pid = ranks[static_cast<std::size_t>(rank)];
      const auto status = reap(pid, fate == Fate::kStopped ? deadline_in(0) : until);
      expect_fate(rank, fate, status);
      if (!status) {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
      }
    }
  }
  std::filesystem::remove_all(directory);
}

void end(Transport&, Fate fate) { raise(fate == Fate::kKilled ? SIGKILL : SIGSTOP); }

}  // namespace

TransportBackend process_backend(std::string name, MakeTransport make) {
  return {std::move(name),
          [make = std::move(make)](int size, const RankBody& body, const std::map<int, Fate>& fates,
                                   double limit) { run_processes(make, size, body, fates, limit); },
          end, 30};
}

}  // namespace gradwire::laws
