#include "apps/doctor/pair_probe.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>

#include "comm/rendezvous/socket.h"
#include "comm/tcp/tcp_transport.h"
#include "comm/ucx/ucx_transport.h"

namespace gradwire {
namespace {

constexpr double kSeconds = 20;

Result<std::string> connect_and_describe(int rank, const std::string& directory,
                                         const std::string& transport,
                                         const std::string& interfaces) {
  GW_ASSIGN(auto store, make_file_store(directory));
  const Rendezvous rendezvous{.rank = rank,
                              .size = 2,
                              .job = "doctor",
                              .store = std::move(store),
                              .timeout_seconds = kSeconds / 2};
  if (transport == "tcp") {
    GW_ASSIGN(const auto made, make_tcp_transport(rendezvous, {.interface = interfaces}));
    return made->describe();
  }
  UcxOptions options;
  options.interfaces = interfaces;
  GW_ASSIGN(const auto made, make_ucx_transport(rendezvous, options));
  return made->describe();
}

// In the child: "+" and the description, or "-" and the error.
[[noreturn]] void play(int rank, int out, const std::string& directory,
                       const std::string& transport, const std::string& interfaces) {
  alarm(static_cast<unsigned>(kSeconds));
  const auto text = connect_and_describe(rank, directory, transport, interfaces);
  const std::string said =
      text.has_value() ? "+" + text.value() : "-" + std::string(text.error().message());
  const bool written =
      rank != 0 || ::write(out, said.data(), said.size()) == static_cast<ssize_t>(said.size());
  _exit(written ? 0 : 1);
}

std::string read_until_closed(int fd, Deadline until) {
  std::string text;
  std::array<char, 4096> chunk{};
  while (true) {
    pollfd entry{fd, POLLIN, 0};
    if (::poll(&entry, 1, rendezvous::poll_timeout(until)) <= 0) return text;
    const ssize_t count = ::read(fd, chunk.data(), chunk.size());
    if (count <= 0) return text;
    text.append(chunk.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace

Result<std::string> probe_pair(const std::string& transport, const std::string& interfaces) {
  std::string directory =
      (std::filesystem::temp_directory_path() / "gradwire-doctor-XXXXXX").string();
  std::array<int, 2> ends{};
  if (mkdtemp(directory.data()) == nullptr || ::pipe2(ends.data(), O_CLOEXEC) != 0)
    return Status(Code::kInternal, "cannot make a temporary directory and a pipe");
  const rendezvous::Fd read_end(ends[0]);
  auto write_end = std::make_unique<rendezvous::Fd>(ends[1]);
  std::array<pid_t, 2> ranks{};
  for (int rank = 0; rank < 2; ++rank) {
    pid_t& pid = ranks[static_cast<std::size_t>(rank)];
    pid = ::fork();
    if (pid == 0) play(rank, write_end->get(), directory, transport, interfaces);
  }
  write_end.reset();
  const std::string said = read_until_closed(read_end.get(), deadline_in(kSeconds));
  for (const pid_t pid : ranks) {
    if (pid <= 0) continue;
    if (said.empty()) (void)::kill(pid, SIGKILL);
    (void)::waitpid(pid, nullptr, 0);  // its alarm() bounds this
  }
  std::error_code none;
  std::filesystem::remove_all(directory, none);
  if (said.starts_with('+')) return said.substr(1);
  return Status(Code::kInternal,
                said.empty() ? "two processes of this host did not connect" : said.substr(1));
}

}  // namespace gradwire
