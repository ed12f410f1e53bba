// Hosts are told apart by their networks, also where one came after the other. Skipped as a whole
// (77) where a process may have no network of its own, or the system has no cookies for them.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <set>
#include <thread>

#include "comm/host.h"

namespace gradwire::comm {
namespace {

// What a process in a network of its own writes, which ends with it; 0 where it gets none.
template <typename Number>
std::uint64_t in_own_network(const Number& number) {
  int ends[2];
  if (::pipe(ends) != 0) return 0;
  const pid_t child = fork();
  if (child == 0) {
    const std::uint64_t told = ::unshare(CLONE_NEWNET) == 0 ? number() : 0;
    _exit(::write(ends[1], &told, sizeof told) == sizeof told ? 0 : 1);
  }
  ::close(ends[1]);
  std::uint64_t told = 0;
  const bool whole = ::read(ends[0], &told, sizeof told) == sizeof told;
  ::close(ends[0]);
  return waitpid(child, nullptr, 0) == child && whole ? told : 0;
}

std::uint64_t cookie() {
  std::uint64_t value = 0;
#ifdef SO_NETNS_COOKIE
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  socklen_t size = sizeof value;
  if (getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &value, &size) != 0) value = 0;
  ::close(fd);
#endif
  return value;
}

// The kernel numbers a network as one that has ended before it.
TEST(ShmHost, DiffersForNetworksThatFollowEachOther) {
  std::set<std::uint64_t> seen;
  constexpr int kNetworks = 40;
  for (int i = 0; i < kNetworks; ++i) {
    const std::uint64_t hash = in_own_network([] { return host_number(); });
    ASSERT_NE(hash, 0U);
    seen.insert(hash);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the old one ends in between
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(kNetworks));
}

}  // namespace
}  // namespace gradwire::comm

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (gradwire::comm::in_own_network(gradwire::comm::cookie) == 0) {
    std::fprintf(stderr, "skipped: no right to a network of its own, or a kernel before 5.14\n");
    return 77;
  }
  return RUN_ALL_TESTS();
}
