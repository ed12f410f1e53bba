#include "comm/shm/host.h"

#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

#include "base/hash.h"
#include "base/text.h"
#include "comm/process_state.h"
#include "comm/rendezvous/socket.h"

namespace gradwire::shm {
namespace {

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

}  // namespace

std::string host_identity() {
  const std::string boot = comm::boot_id();
  const std::string processes = comm::name_space("pid");
  const std::string network = comm::name_space("net");
  if (boot.empty() || processes.empty()) {
    return format("unknown:%d", static_cast<int>(getpid()));
  }
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = 0;
  return boot + "/" + host.data() + "/" + processes + "/" + network + "/" + network_cookie();
}

std::uint64_t hash_of_host(const std::string& identity) {
  const std::uint64_t hash = hash_name(identity);
  return hash == 0 ? 1 : hash;
}

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

}  // namespace gradwire::shm
