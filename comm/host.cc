#include "comm/host.h"

#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <thread>

#include "base/hash.h"
#include "base/text.h"
#include "comm/rendezvous/socket.h"

namespace gradwire::comm {
namespace {

// Of the machine; empty where the system does not say.
std::string boot_id() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot;
}

// "pid:[4026531836]": this process's namespace of that kind; empty where there is none.
std::string name_space(const char* kind) {
  std::error_code none;
  return std::filesystem::read_symlink(std::string("/proc/self/ns/") + kind, none).string();
}

std::string unknown() { return format("unknown:%d", static_cast<int>(getpid())); }

// The network namespace's cookie, which no later one gets: the numbers that links in /proc show are
// given out again. Empty before Linux 5.14.
std::string network_cookie() {
#ifdef SO_NETNS_COOKIE
  const rendezvous::Fd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  if (getsockopt(fd.get(), SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) == 0)
    return format("%llu", static_cast<unsigned long long>(cookie));
#endif
  return {};
}

// A process whose first thread has returned is called a zombie while its other threads go on.
bool has_other_threads(pid_t pid) {
  std::error_code gone;
  const std::filesystem::directory_iterator threads("/proc/" + std::to_string(pid) + "/task", gone);
  return !gone && std::distance(begin(threads), end(threads)) > 1;
}

}  // namespace

std::string process_space() {
  const std::string boot = boot_id(), space = name_space("pid");
  return boot.empty() || space.empty() ? "-" : boot + "/" + space;
}

std::string network_identity() {
  const std::string boot = boot_id(), space = name_space("net");
  return boot.empty() || space.empty() ? unknown() : boot + "/" + space;
}

std::string host_identity() {
  const std::string boot = boot_id(), processes = name_space("pid");
  if (boot.empty() || processes.empty()) return unknown();
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = 0;
  return boot + "/" + host.data() + "/" + processes + "/" + name_space("net") + "/" +
         network_cookie();
}

std::uint64_t host_number() { return std::max<std::uint64_t>(hash_name(host_identity()), 1); }

Processors usable_processors() {
  Processors words{};
  const auto add = [&](unsigned processor) {
    const std::size_t word = processor / 64;
    if (word < words.size()) words[word] |= std::int64_t{1} << processor % 64;
  };
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (unsigned i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &set)) add(i);
    }
  }
  if (words == Processors{}) {
    for (unsigned i = 0; i < std::max(std::thread::hardware_concurrency(), 1u); ++i) add(i);
  }
  return words;
}

// /proc/PID/stat: number, (name), state letter.
bool has_ended_or_stopped(pid_t pid) {
  if (::kill(pid, 0) != 0 && errno == ESRCH) return true;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  const std::size_t name_end = line.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos || name_end + 2 >= line.size()) return false;
  const char state = line[name_end + 2];
  if (state == 'Z') return !has_other_threads(pid);
  return std::string("TtXx").find(state) != std::string::npos;
}

}  // namespace gradwire::comm
