// PMI-1 on the wire: lines of "name=value" words, of which cmd comes first; a request, its answer.
//   init pmi_version=1 pmi_subversion=1   response_to_init rc=0
//   get_my_kvsname                        my_kvsname kvsname=K
//   put kvsname=K key=.. value=..         put_result rc=0
//   barrier_in                            barrier_out, when all ranks are in
//   get kvsname=K key=..                  get_result rc=0 value=..
//   finalize                              finalize_ack
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/text.h"
#include "comm/rendezvous/exchange.h"
#include "comm/rendezvous/hmac.h"

namespace gradwire::rendezvous {
namespace {

constexpr std::size_t kMostLine = 8192;  // of an answer
constexpr const char* kPmiKey = "gradwire-root";

// The value of `name` in a line of words; nullopt where it has none.
std::optional<std::string> value_of(std::string_view line, std::string_view name) {
  const std::string words = " " + std::string(line), before = " " + std::string(name) + "=";
  const std::size_t at = words.find(before);
  if (at == std::string::npos) return std::nullopt;
  const std::size_t begin = at + before.size();
  return words.substr(begin, words.find(' ', begin) - begin);
}

// The launcher's descriptor, which stays open.
class Connection {
 public:
  Connection(int fd, Deadline deadline) : fd_(fd), deadline_(deadline) {}

  Status check() const {
    int type = 0;
    socklen_t size = sizeof type;
    if (::getsockopt(fd_, SOL_SOCKET, SO_TYPE, &type, &size) == 0) return {};
    return {Code::kInvalidArgument,
            format("PMI_FD (got '%d', expected the open connection to the process manager: %s)",
                   fd_, std::strerror(errno))};
  }
  // The answer to `request`, which must be the command `wanted` and report no failure.
  Result<std::string> ask(const std::string& request, std::string_view wanted) {
    const std::string line_out = request + "\n";
    const Status sent = write_all(fd_, bytes_of_text(line_out), deadline_);
    if (!sent.ok()) return told(sent, request);
    GW_ASSIGN(std::string line, receive(request));
    const bool failed = value_of(line, "rc").value_or("0") != "0";
    if (failed || value_of(line, "cmd") != wanted)
      return unexpected("'" + line + "' in answer to '" + request + "'");
    return line;
  }

 private:
  static Status unexpected(const std::string& what) {
    return {Code::kInvalidArgument,
            "the process manager at PMI_FD says " + what + " (expected PMI-1)"};
  }
  // What has ended the conversation at `request`.
  Status told(const Status& failure, const std::string& request) const {
    if (failure.code() != Code::kPeerLost)
      return {failure.code(), "the process manager at PMI_FD did not answer '" + request +
                                  "' in time (some ranks may be missing)"};
    return {Code::kPeerLost, format("the process manager at PMI_FD=%d closed the connection (after "
                                    "%s; a process can use it once, and not beside MPI)",
                                    fd_, request.c_str())};
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
      std::array<std::byte, 1024> chunk{};
      const auto bytes = read_more(fd_, chunk, deadline_);
      if (!bytes.has_value()) return told(bytes.error(), request);
      received_ += text_of_bytes(ConstByteSpan(chunk).first(bytes.value()));
    }
  }

  int fd_;
  Deadline deadline_;
  std::string received_;
};

}  // namespace

Result<std::string> exchange_over_pmi(int fd, int rank, std::string_view text, Deadline deadline) {
  Connection manager(fd, deadline);
  GW_TRY(manager.check());
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
