#include "comm/shm/bell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <ctime>

namespace gradwire::shm {
namespace {

// Shared between processes, so without FUTEX_PRIVATE_FLAG.
long futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value,
           const timespec* timeout) {
  return syscall(SYS_futex, word, operation, value, timeout, nullptr, 0);
}

}  // namespace

void Bell::sleep(std::uint32_t seen, Deadline until) {
  using std::chrono::nanoseconds;
  const auto left =
      std::chrono::duration_cast<nanoseconds>(until - std::chrono::steady_clock::now()).count();
  if (left <= 0) return;
  constexpr std::int64_t kSecond = 1'000'000'000;
  timespec timeout{};
  timeout.tv_sec = static_cast<time_t>(left / kSecond);
  timeout.tv_nsec = static_cast<long>(left % kSecond);
  futex(&rings_, FUTEX_WAIT, seen, &timeout);
}

void Bell::ring() {
  rings_.fetch_add(1, std::memory_order_release);
  futex(&rings_, FUTEX_WAKE, INT_MAX, nullptr);
}

}  // namespace gradwire::shm
