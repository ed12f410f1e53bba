// What a process has of workers that others in it, or strangers, disturb.
//
// Strangers that connect while UCX makes a worker: 1.13.1 takes what they send for a bug of its
// own, and aborts (ucp_worker.c:691), when it has accepted them and not yet put the interface to
// sleep. Here they come as early as that can be, and the time between the two is made long: this
// program's listen() and uct_iface_query() stand before those that UCX calls.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/ucx/event_pause.h"
#include "comm/ucx/worker.h"

namespace {

constexpr int kWorkers = 4;
constexpr unsigned kLimitSeconds = 100;
constexpr std::chrono::milliseconds kWindow{20};

// Written by one thread: the one that makes workers.
std::vector<int> strangers;
bool knocking = false;
bool just_come = false;
// How often UCX has asked a broken interface what it can do; < 0: none is broken.
int broken = -1;

// Strangers that say much, little or nothing; every second one stays.
void knock(int listener) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  if (getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) return;
  if (address.sin_family != AF_INET) return;
  constexpr std::array<char, 3000> kNoise = {"GET / HTTP/1.1\r\nHost: a\r\n\r\n"};
  for (const std::size_t bytes : {0, 3, 8, 20, 3000}) {
    for (const bool stays : {false, true}) {
      const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (fd < 0) return;
      if (connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0)
        (void)!send(fd, kNoise.data(), bytes, MSG_NOSIGNAL);
      if (stays) {
        strangers.push_back(fd);
      } else {
        close(fd);
      }
    }
  }
  just_come = true;
}

template <typename Function>
Function* next(const char* name, Function*) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" int listen(int fd, int backlog) noexcept {
  static const auto real = next("listen", &listen);
  const int result = real(fd, backlog);
  if (result == 0 && knocking) knock(fd);
  return result;
}

// A status of UCX's is one byte.
extern "C" signed char ucs_global_opts_get_value(const char* name, char* value, std::size_t room);
extern "C" signed char uct_iface_query(void* iface, void* attributes) {
  static const auto real = next("uct_iface_query", &uct_iface_query);
  if (std::exchange(just_come, false)) std::this_thread::sleep_for(kWindow);
  constexpr signed char kInputOutputError = -3;
  if (broken >= 0) return ++broken, kInputOutputError;
  return real(iface, attributes);
}

namespace gradwire {
namespace {

// How many of the workers could not be made, or were met by no stranger.
int make_workers() {
  knocking = true;
  int missing = 0;
  for (int w = 0; w < kWorkers; ++w) {
    const std::size_t before = strangers.size();
    const auto worker = ucx::Worker::make({});
    if (!worker.has_value() || strangers.size() == before) {
      ++missing;
      continue;
    }
    // Now they are accepted, and thrown out.
    for (int turn = 0; turn < 100; ++turn) {
      (void)worker.value()->progress();
      (void)worker.value()->progress_control();
    }
  }
  return missing;
}

// In a process of its own: what is tested may end it, or change what is the process's.
void expect_none_wrong(int (*look)()) {
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    alarm(kLimitSeconds);
    _exit(look());
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(UcxWorker, IsMadeWhileStrangersConnect) { expect_none_wrong(make_workers); }

// The log level is the process's; a worker that gives its data up lowers it meanwhile.
std::string log_level() {
  std::array<char, 32> level{};
  (void)ucs_global_opts_get_value("LOG_LEVEL", level.data(), level.size());
  return level.data();
}

int give_up_data_together() {
  const std::string before = log_level();
  const auto give_up = [] {
    const auto worker = ucx::Worker::make();
    for (int i = 0; i < 20 && worker.has_value(); ++i) {
      worker.value()->drop_data();
      if (!worker.value()->renew_data().ok()) return;
    }
  };
  std::thread other(give_up);
  give_up();
  other.join();
  return !before.empty() && log_level() == before ? 0 : 1;
}

TEST(UcxWorker, ThoseThatGiveUpTheirDataTogetherLeaveTheLogLevelAsItWas) {
  expect_none_wrong(give_up_data_together);
}

// What fails for other reasons than room in /dev/shm is not tried without it.
int fail_once() {
  broken = 0;
  const auto worker = ucx::Worker::make();
  const int wanted = ucx::has_little_room() ? 2 : 1;
  return !worker.has_value() && broken == wanted ? 0 : 1;
}

TEST(UcxWorker, ThatCannotBeMadeIsNotTriedWithoutSharedMemoryOfWhichThereIsEnough) {
  expect_none_wrong(fail_once);
}

// Somebody else in this process holds UCX's event thread for longer than there is time.
int give_up_in_time() {
  const auto pause = ucx::EventPause::begin(deadline_in(10));
  if (!pause.has_value()) return 1;
  const auto start = std::chrono::steady_clock::now();
  const auto worker = ucx::Worker::make({}, deadline_in(0.2));
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  if (worker.has_value() || worker.error().code() != Code::kTimedOut) return 2;
  return time.count() < 10 ? 0 : 3;
}

TEST(UcxWorker, WaitsForTheEventThreadNoLongerThanItsCaller) { expect_none_wrong(give_up_in_time); }

}  // namespace
}  // namespace gradwire
