#include "comm/shm/host.h"

#include <sched.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <thread>

#include "base/hash.h"
#include "base/text.h"

namespace gradwire::shm {
namespace {

// "pid:[4026531836]"; empty where there is no such namespace.
std::string name_space(const char* path) {
  std::array<char, 64> text{};
  const ssize_t length = readlink(path, text.data(), text.size() - 1);
  return length > 0 ? std::string(text.data(), static_cast<std::size_t>(length)) : std::string();
}

}  // namespace

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  const std::string processes = name_space("/proc/self/ns/pid");
  const std::string network = name_space("/proc/self/ns/net");
  if (boot.empty() || processes.empty()) {
    return format("unknown:%d", static_cast<int>(getpid()));
  }
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = 0;
  return boot + "/" + host.data() + "/" + processes + "/" + network;
}

std::uint64_t hash_of_host(const std::string& identity) {
  const std::uint64_t hash = hash_name(identity);
  return hash == 0 ? 1 : hash;
}

int usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  const unsigned known = std::thread::hardware_concurrency();
  return known == 0 ? 1 : static_cast<int>(known);
}

}  // namespace gradwire::shm
