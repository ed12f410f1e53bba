#include "bench/goals/torch_peer.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

namespace gradwire::bench {
namespace {

constexpr std::size_t kLine = 64;

[[noreturn]] void become(const std::string& python, const std::string& script, std::size_t elements,
                         int in, int out) {
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  const std::string count = std::to_string(elements);
  execlp(python.c_str(), python.c_str(), script.c_str(), "serve", count.c_str(), nullptr);
  _exit(127);
}

}  // namespace

std::unique_ptr<TorchPeer> TorchPeer::start(const std::string& python, const std::string& script,
                                            std::size_t elements) {
  std::array<int, 2> down{};
  std::array<int, 2> up{};
  if (pipe2(down.data(), O_CLOEXEC) != 0 || pipe2(up.data(), O_CLOEXEC) != 0) return nullptr;
  const pid_t process = fork();
  if (process == 0) become(python, script, elements, down[0], up[1]);
  close(down[0]);
  close(up[1]);
  std::unique_ptr<TorchPeer> peer(new TorchPeer(process, fdopen(down[1], "w"), fdopen(up[0], "r")));
  std::array<char, kLine> line{};
  if (process > 0 && std::fgets(line.data(), kLine, peer->from_) != nullptr) {
    std::fprintf(stderr, "beside torch %s", line.data());
    return peer;
  }
  std::fprintf(stderr, "codec_goals: no torch under '%s %s': its columns are left out\n",
               python.c_str(), script.c_str());
  return nullptr;
}

TorchPeer::~TorchPeer() {
  std::fclose(to_);  // which ends it
  std::fclose(from_);
  if (process_ > 0) waitpid(process_, nullptr, 0);
}

double TorchPeer::seconds(const char* name) {
  std::fprintf(to_, "%s\n", name);
  std::fflush(to_);
  std::array<char, kLine> line{};
  if (std::fgets(line.data(), kLine, from_) == nullptr) {
    std::fprintf(stderr, "codec_goals: error: torch gave no answer to '%s'\n", name);
    std::exit(1);
  }
  return std::strtod(line.data(), nullptr);
}

}  // namespace gradwire::bench
