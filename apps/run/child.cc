#include "apps/run/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/text.h"

namespace gradwire {
namespace {

using rendezvous::Fd;

struct Pipe {
  Fd read;
  Fd write;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return Status(Code::kInternal, format("cannot make a pipe (%s)", std::strerror(errno)));
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

// A launcher started in the background or by nohup ignores signals that its ranks must not.
void restore_signals() {
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) (void)::sigaction(signal, &standard, nullptr);
  sigset_t none;
  sigemptyset(&none);
  (void)::sigprocmask(SIG_SETMASK, &none, nullptr);
}

bool redirect(int from, int to) { return ::dup2(from, to) == to; }

// In the child, between fork and exec. Returns only if something fails, with errno set.
void become(const ChildOptions& options, const std::vector<char*>& argv, int out, int err,
            int joining) {
  if (::setpgid(0, 0) != 0 || ::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return;
  if (::getppid() != options.launcher) _exit(1);  // it died before the line above
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0 || !redirect(null, STDIN_FILENO) || !redirect(out, STDOUT_FILENO) ||
      !redirect(err, STDERR_FILENO))
    return;
  for (const std::string& entry : options.environment) {
    const std::size_t equals = entry.find('=');
    ::setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
  }
  // Inherited under another number than the parent's, which closes on exec.
  struct stat pipe {};
  const int kept = ::dup(joining);
  if (kept < 0 || ::fstat(kept, &pipe) != 0) return;
  const std::string place = format("%d:%llu", kept, static_cast<unsigned long long>(pipe.st_ino));
  ::setenv("GRADWIRE_JOIN_PIPE", place.c_str(), 1);
  restore_signals();
  ::execvp(options.file.c_str(), argv.data());
}

std::string own_path() {
  std::array<char, 4096> path{};
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
  return size > 0 ? std::string(path.data(), static_cast<std::size_t>(size)) : std::string();
}

bool in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "/bin:/usr/bin" : path;
  while (true) {
    const std::size_t colon = rest.find(':');
    const std::string folder(rest.substr(0, colon));
    if (::access((folder + "/" + program).c_str(), X_OK) == 0) return true;
    if (colon == std::string_view::npos) return false;
    rest.remove_prefix(colon + 1);
  }
}

}  // namespace

std::string resolve_program(const std::string& program) {
  if (program.find('/') != std::string::npos || in_path(program)) return program;
  const std::string own = own_path();
  const bool is_own = program == "gradwire" || program == own.substr(own.rfind('/') + 1);
  return is_own && !own.empty() ? own : program;
}

Result<RankProcess> start_child(const ChildOptions& options) {
  GW_ASSIGN(Pipe out, make_pipe());
  GW_ASSIGN(Pipe err, make_pipe());
  GW_ASSIGN(Pipe joining, make_pipe());
  GW_ASSIGN(Pipe trouble, make_pipe());  // closed by a successful exec, else it brings the errno
  std::vector<char*> argv;
  for (const std::string& word : options.arguments) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);

  const pid_t pid = ::fork();
  if (pid < 0)
    return Status(Code::kInternal, format("cannot start a process (%s)", std::strerror(errno)));
  if (pid == 0) {
    become(options, argv, out.write.get(), err.write.get(), joining.write.get());
    const int error = errno;
    (void)!::write(trouble.write.get(), &error, sizeof error);
    _exit(127);
  }
  trouble.write = Fd();
  int error = 0;
  ssize_t count = 0;
  do count = ::read(trouble.read.get(), &error, sizeof error);
  while (count < 0 && errno == EINTR);
  if (count > 0) {
    (void)::waitpid(pid, nullptr, 0);
    return Status(
        error == ENOENT ? Code::kUnsupported : Code::kInvalidArgument,
        format("cannot execute '%s' (%s)", options.arguments[0].c_str(), std::strerror(error)));
  }
  (void)::fcntl(out.read.get(), F_SETFL, O_NONBLOCK);
  (void)::fcntl(err.read.get(), F_SETFL, O_NONBLOCK);
  (void)::fcntl(joining.read.get(), F_SETFL, O_NONBLOCK);
  return RankProcess{pid, std::move(out.read), std::move(err.read), std::move(joining.read)};
}

}  // namespace gradwire
