// Ranks as processes of this machine: forks one per rank, which find each other through files. The
// parent calls no backend.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gradwire/communicator.h"

namespace gradwire {

// One rank's life; the text says what went wrong, empty when nothing did.
using ProcessProgram = std::function<std::string(std::unique_ptr<Communicator> world)>;

// What became of a rank.
struct ProcessOutcome {
  std::string text;  // what the program returned
  bool ended = false;
  int wait_status = 0;  // as of waitpid(), if ended
  double seconds = 0;   // from the start
};

namespace process_ranks {

// In the child.
[[noreturn]] inline void play(int rank, int size, const std::string& folder, int result_fd,
                              const CommunicatorOptions& options, const ProcessProgram& program,
                              const std::string& backend) {
  std::string text;
  auto store = make_file_store(folder);
  if (!store.has_value()) {
    text = store.error().message();
  } else {
    Rendezvous rendezvous{.rank = rank, .size = size, .job = "test", .store = store.value()};
    rendezvous.timeout_seconds = 20;
    auto world = make_communicator(backend, rendezvous, options);
    text = world.has_value() ? program(std::move(world).value())
                             : std::string(world.error().message());
  }
  if (!text.empty() && write(result_fd, text.data(), text.size()) < 0) std::perror("write");
  std::fflush(nullptr);
  _exit(0);
}

inline std::string read_all(int fd) {
  std::string text;
  char buffer[512];
  for (ssize_t got = read(fd, buffer, sizeof(buffer)); got > 0;
       got = read(fd, buffer, sizeof(buffer))) {
    text.append(buffer, static_cast<std::size_t>(got));
  }
  return text;
}

}  // namespace process_ranks

// Ranks that have not ended after `limit_seconds` are killed and reported as not ended. `meanwhile`
// runs in the parent once all are started; it gets their process ids by rank.
inline std::vector<ProcessOutcome> on_processes(
    int ranks, const CommunicatorOptions& options, double limit_seconds,
    const ProcessProgram& program,
    const std::function<void(const std::vector<pid_t>&)>& meanwhile = {},
    const std::string& backend = "ucx") {
  std::string folder = (std::filesystem::temp_directory_path() / "gw-ranks-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return {};
  std::fflush(nullptr);
  std::vector<pid_t> pids;
  std::vector<int> results;
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (pipe(ends) != 0) return {};
    const pid_t pid = fork();
    if (pid == 0) process_ranks::play(rank, ranks, folder, ends[1], options, program, backend);
    close(ends[1]);
    pids.push_back(pid);
    results.push_back(ends[0]);
  }
  if (meanwhile) meanwhile(pids);
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  std::vector<ProcessOutcome> outcomes(pids.size());
  for (std::size_t open = pids.size(); open > 0 && seconds() < limit_seconds;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    for (std::size_t r = 0; r < pids.size(); ++r) {
      ProcessOutcome& outcome = outcomes[r];
      if (outcome.ended || waitpid(pids[r], &outcome.wait_status, WNOHANG) != pids[r]) continue;
      outcome.ended = true;
      outcome.seconds = seconds();
      --open;
    }
  }
  for (std::size_t r = 0; r < pids.size(); ++r) {
    if (!outcomes[r].ended) {
      kill(pids[r], SIGKILL);
      int ignored = 0;
      waitpid(pids[r], &ignored, 0);
    }
    outcomes[r].text = process_ranks::read_all(results[r]);
    close(results[r]);
  }
  std::filesystem::remove_all(folder);
  return outcomes;
}

}  // namespace gradwire
