// PMI-1 on the wire: lines of "name=value" words, of which cmd comes first; a request, its answer.
//   init pmi_version=1 pmi_subversion=1   response_to_init rc=0
//   get_my_kvsname                        my_kvsname kvsname=K
//   put kvsname=K key=.. value=..         put_result rc=0
//   barrier_in                            barrier_out, when all ranks are in
//   get kvsname=K key=..                  get_result rc=0 value=..
//   finalize                              finalize_ack
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/text.h"
#include "comm/rendezvous/exchange.h"

namespace gradwire::rendezvous {
namespace {

constexpr std::size_t kMostLine = 8192;  // of an answer
constexpr const char* kPmiKey = "gradwire-root";

// The value of `name` in a line of words; nullopt where it has none.
std::optional<std::string> value_of(std::string_view line, std::string_view name) {
  std::size_t at = 0;
  while (at < line.size()) {
    const std::size_t end = std::min(line.find(' ', at), line.size());
    const std::string_view word = line.substr(at, end - at);
    if (word.size() > name.size() && word.starts_with(name) && word[name.size()] == '=')
      return std::string(word.substr(name.size() + 1));
    at = end + 1;
  }
  return std::nullopt;
}

// The launcher's descriptor, which stays open and becomes non-blocking meanwhile.
class Connection {
 public:
  static Result<Connection> over(int fd, Deadline deadline) {
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
      return Status(
          Code::kInvalidArgument,
          format("PMI_FD (got '%d', expected the open connection to the process manager: %s)", fd,
                 std::strerror(errno)));
    return Connection(fd, flags, deadline);
  }
  Connection(Connection&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        flags_(other.flags_),
        deadline_(other.deadline_),
        received_(std::move(other.received_)) {}
  Connection& operator=(Connection&&) = delete;
  ~Connection() {
    if (fd_ >= 0) (void)::fcntl(fd_, F_SETFL, flags_);
  }

  // The answer to `request`, which must be the command `wanted` and report no failure.
  Result<std::string> ask(const std::string& request, std::string_view wanted) {
    GW_TRY(send(request + "\n"));
    GW_ASSIGN(std::string line, receive(request));
    const bool failed = value_of(line, "rc").value_or("0") != "0";
    if (failed || value_of(line, "cmd") != wanted)
      return unexpected("'" + line + "' in answer to '" + request + "'");
    return line;
  }

 private:
  Connection(int fd, int flags, Deadline deadline) : fd_(fd), flags_(flags), deadline_(deadline) {}

  static Status unexpected(const std::string& what) {
    return {Code::kInvalidArgument,
            "the process manager at PMI_FD says " + what + " (expected PMI-1)"};
  }
  Status closed(const std::string& request) const {
    return {Code::kPeerLost, format("the process manager at PMI_FD=%d closed the connection (after "
                                    "%s; a process can use it once, and not beside MPI)",
                                    fd_, request.c_str())};
  }
  // It is a socket, or with some process managers a pipe.
  Status send(const std::string& line) const {
    std::size_t sent = 0;
    while (sent < line.size()) {
      GW_TRY(wait_writable(fd_, deadline_).with_context("PMI_FD"));
      const ssize_t count =
          ::send(fd_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count > 0) {
        sent += static_cast<std::size_t>(count);
      } else if (errno == ENOTSOCK) {
        return {Code::kInvalidArgument, format("PMI_FD (got '%d', which is no socket; expected the "
                                               "connection to the process manager)",
                                               fd_)};
      } else if (errno != EAGAIN && errno != EINTR) {
        return closed(line.substr(0, line.size() - 1));
      }
    }
    return {};
  }
  Result<std::string> receive(const std::string& request) {
    while (true) {
      const std::size_t end = received_.find('\n');
      if (end != std::string::npos) {
        std::string line = received_.substr(0, end);
        received_.erase(0, end + 1);
        return line;
      }
      if (received_.size() > kMostLine) return unexpected("an unterminated line");
      const Status ready = wait_readable(fd_, deadline_);
      if (!ready.ok())
        return Status(ready.code(), "the process manager at PMI_FD did not answer '" + request +
                                        "' in time (some ranks may be missing)");
      std::array<char, 1024> chunk{};
      const ssize_t count = ::read(fd_, chunk.data(), chunk.size());
      if (count > 0) received_.append(chunk.data(), static_cast<std::size_t>(count));
      if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return closed(request);
    }
  }

  int fd_;
  int flags_;
  Deadline deadline_;
  std::string received_;
};

}  // namespace

Result<std::string> exchange_over_pmi(int fd, int rank, std::string_view text, Deadline deadline) {
  GW_ASSIGN(Connection manager, Connection::over(fd, deadline));
  GW_TRY(manager.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init").error());
  GW_ASSIGN(const std::string named, manager.ask("cmd=get_my_kvsname", "my_kvsname"));
  const std::string space = value_of(named, "kvsname").value_or("");
  const std::string place = "kvsname=" + space + " key=" + kPmiKey;
  if (rank == 0)
    GW_TRY(manager.ask("cmd=put " + place + " value=" + std::string(text), "put_result").error());
  GW_TRY(manager.ask("cmd=barrier_in", "barrier_out").error());
  GW_ASSIGN(const std::string got, manager.ask("cmd=get " + place, "get_result"));
  // Without it, the end of this process would count as a crash.
  GW_TRY(manager.ask("cmd=finalize", "finalize_ack").error());
  const auto value = value_of(got, "value");
  if (value) return *value;
  return Status(Code::kInvalidArgument,
                "the process manager at PMI_FD says '" + got + "' (expected a value)");
}

}  // namespace gradwire::rendezvous
