#include "apps/sweep/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "base/files.h"

namespace gradwire {
namespace {

// Its group is its own, so it does not get the terminal's Ctrl-C: it ends with its parent.
[[noreturn]] void become(std::vector<char*>& argv, int log, pid_t parent,
                         const std::map<std::string, std::string>& environment) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);  // it died before the line above
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null >= 0) dup2(null, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  execv(argv[0], argv.data());
  _exit(127);
}

}  // namespace

Result<Child> Child::start(const std::vector<std::string>& argv, const std::string& log_path,
                           const std::map<std::string, std::string>& environment) {
  GW_ASSIGN(const File log, open_to_write(log_path));
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) become(words, fileno(log.get()), parent, environment);
  if (pid < 0)
    return Status(Code::kInternal,
                  std::string("cannot start a process (") + std::strerror(errno) + ")");
  setpgid(pid, pid);
  return Child(pid);
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), peak_bytes_(other.peak_bytes_) {}

Child& Child::operator=(Child&& other) noexcept {
  if (this != &other) {
    end();
    pid_ = std::exchange(other.pid_, -1);
    peak_bytes_ = other.peak_bytes_;
  }
  return *this;
}

Child::~Child() { end(); }

std::optional<int> Child::poll() {
  if (pid_ < 0) return 0;
  int status = 0;
  rusage used{};
  if (wait4(pid_, &status, WNOHANG, &used) != pid_) return std::nullopt;
  pid_ = -1;
  peak_bytes_ = static_cast<std::uint64_t>(used.ru_maxrss) * 1024;  // of it and what it waited for
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void Child::end() {
  if (pid_ < 0) return;
  kill(-pid_, SIGTERM);
  for (int i = 0; i < 300; ++i) {
    if (poll()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill(-pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);  // ends at once: nothing survives SIGKILL
  pid_ = -1;
}

}  // namespace gradwire
