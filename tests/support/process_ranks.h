// Ranks as processes of this machine: forks one per rank, which find each other through files. The
// parent calls no backend.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/text.h"
#include "gradwire/communicator.h"

namespace gradwire {

// One rank's life; the text says what went wrong, empty when nothing did.
using ProcessProgram = std::function<std::string(std::unique_ptr<Communicator> world)>;

// How many have come so far; made before on_processes(), shared by its ranks and the parent.
class ProcessCount {
 public:
  ProcessCount()
      : page_(mmap(nullptr, sizeof(Count), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                   0)) {
    if (page_ != MAP_FAILED) count_ = new (page_) Count(0);
  }
  ~ProcessCount() {
    if (page_ != MAP_FAILED) munmap(page_, sizeof(Count));
  }
  ProcessCount(const ProcessCount&) = delete;
  ProcessCount& operator=(const ProcessCount&) = delete;

  void come() const {
    if (count_ != nullptr) ++*count_;
  }
  // Sleeps until so many have come, or for so many seconds; whether they have.
  bool await(int many, double seconds) const {
    const Deadline until = deadline_in(seconds);
    while (count_ != nullptr && *count_ < many && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return count_ != nullptr && *count_ >= many;
  }

 private:
  using Count = std::atomic<int>;
  static_assert(Count::is_always_lock_free);
  void* page_;
  Count* count_ = nullptr;
};

// What became of a rank.
struct ProcessOutcome {
  std::string text;  // what the program returned
  bool ended = false;
  bool stopped = false;  // by a signal; nobody waited for it
  int wait_status = 0;   // as of waitpid(), if ended
};

// By rank.
using ProcessOutcomes = Result<std::vector<ProcessOutcome>>;

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
    rendezvous.timeout_seconds = 60;
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

// Kills and reaps ranks that were begun; what they still would say is read by nobody.
inline void give_up(const std::vector<pid_t>& pids, const std::vector<int>& results) {
  for (const pid_t pid : pids) {
    kill(pid, SIGKILL);
    int ignored = 0;
    waitpid(pid, &ignored, 0);
  }
  for (const int fd : results) close(fd);
}

}  // namespace process_ranks

// The outcome of each of `ranks` processes, by rank. Ranks that are stopped, or have not ended
// after `limit_seconds`, are killed and reported so. `meanwhile` runs in the parent once all are
// started; it gets their process ids by rank. kInternal if they cannot all be started, with none
// left behind: what did not run must not look like what ended well. Judge by ended_cleanly().
inline ProcessOutcomes on_processes(
    int ranks, const CommunicatorOptions& options, double limit_seconds,
    const ProcessProgram& program,
    const std::function<void(const std::vector<pid_t>&)>& meanwhile = {},
    const std::string& backend = "ucx") {
  std::string folder = (std::filesystem::temp_directory_path() / "gw-ranks-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    return Status(Code::kInternal, format("mkdtemp(%s): %s", folder.c_str(), std::strerror(errno)));
  }
  std::fflush(nullptr);
  std::vector<pid_t> pids;
  std::vector<int> results;
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    pid_t pid = -1;
    const bool piped = pipe(ends) == 0;
    if (piped) pid = fork();
    if (pid == 0) process_ranks::play(rank, ranks, folder, ends[1], options, program, backend);
    if (pid < 0) {
      const int why = errno;
      if (piped) {
        close(ends[0]);
        close(ends[1]);
      }
      process_ranks::give_up(pids, results);
      std::error_code ignored;
      std::filesystem::remove_all(folder, ignored);
      return Status(Code::kInternal,
                    format("starting rank %d of %d: %s", rank, ranks, std::strerror(why)));
    }
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
      if (outcome.ended || outcome.stopped) continue;
      if (waitpid(pids[r], &outcome.wait_status, WNOHANG | WUNTRACED) != pids[r]) continue;
      (WIFSTOPPED(outcome.wait_status) ? outcome.stopped : outcome.ended) = true;
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
