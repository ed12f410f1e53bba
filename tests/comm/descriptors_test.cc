// Limits of descriptors, each in a process of its own.
#include "comm/descriptors.h"
#include "tests/support/names.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

namespace gradwire::comm::descriptors_test {
namespace {

// Whether `look` holds in a process with these limits.
bool holds(rlim_t soft, rlim_t hard, const std::function<bool()>& look) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(60);
    const rlimit limit{soft, hard};
    _exit(setrlimit(RLIMIT_NOFILE, &limit) == 0 && look() ? 0 : 1);
  }
  int status = 0;
  return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

rlim_t soft_limit() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

// More will be wanted: connections come as ranks talk.
TEST(Descriptors, AreRaisedWhereTheySufficeForNow) {
  EXPECT_TRUE(holds(
      200, 400, [] { return make_room_for_descriptors(100, "this").ok() && soft_limit() == 400; }));
}

TEST(Descriptors, AreRaisedAsFarAsTheHardLimitAllows) {
  EXPECT_TRUE(holds(64, 400, [] {
    return make_room_for_descriptors(93, "this").ok() && soft_limit() >= 93 + 3;
  }));
}

TEST(Descriptors, ThatCannotBeHadAreAnErrorThatNamesThem) {
  EXPECT_TRUE(holds(64, 80, [] {
    const Status status = make_room_for_descriptors(93, "connections to 31 ranks");
    return status.code() == Code::kUnsupported &&
           names_all(status.message(), "connections to 31 ranks", "64", "80", "RLIMIT_NOFILE") &&
           soft_limit() == 64;
  }));
}

// Where none is left, none is left to count them with.
TEST(Descriptors, ThatHaveRunOutAreAnErrorThatNamesThem) {
  EXPECT_TRUE(holds(64, 64, [] {
    for (int i = 0; i < 64 && dup(0) >= 0; ++i) continue;
    const Status status = make_room_for_descriptors(1, "a connection");
    return status.code() == Code::kUnsupported &&
           names_all(status.message(), "a connection", "81", "64 are open", "RLIMIT_NOFILE");
  }));
}

}  // namespace
}  // namespace gradwire::comm::descriptors_test
