// What this host tells: what its processes have in common, and which of them are certainly dead.
#include "comm/host.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "gradwire/tensor.h"

namespace gradwire::comm::host_test {
namespace {

// A child of this process; it ends with the test.
class Child {
 public:
  explicit Child(const std::function<void()>& life) : pid_(fork()) {
    if (pid_ != 0) return;
    life();
    _exit(0);
  }
  ~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    reap();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void send(int signal) const { kill(pid_, signal); }
  void reap() { (void)ends(); }
  // What it ends with, as waitpid() has it.
  int ends() {
    int status = -1;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }

 private:
  pid_t pid_;
};

bool becomes(pid_t pid, bool wanted) {
  for (const Deadline until = deadline_in(20); std::chrono::steady_clock::now() < until;) {
    if (has_ended_or_stopped(pid) == wanted) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

void sleep_long() { std::this_thread::sleep_for(std::chrono::seconds(60)); }

TEST(Host, HasNamesThatAChildSeesToo) {
  const std::string host = host_identity(), network = network_identity(), space = process_space();
  const std::uint64_t number = host_number();
  for (const std::string& word : {host, network, space}) {
    EXPECT_FALSE(word.empty());
    EXPECT_EQ(word.find_first_of(" \n"), std::string::npos) << word;  // it is a word of a record
  }
  EXPECT_NE(number, 0u);
  Child child([&] {
    const bool same = host_identity() == host && network_identity() == network &&
                      process_space() == space && host_number() == number;
    _exit(same ? 0 : 1);
  });
  ASSERT_GT(child.pid(), 0);
  EXPECT_EQ(child.ends(), 0);
}

TEST(Host, LetsThisProcessRunSomewhere) { EXPECT_NE(usable_processors(), Processors{}); }

TEST(Host, OfAProcessThatIsStoppedContinuedKilledAndReaped) {
  Child child(sleep_long);
  const pid_t pid = child.pid();
  ASSERT_GT(pid, 0);
  EXPECT_FALSE(has_ended_or_stopped(pid));
  child.send(SIGSTOP);
  EXPECT_TRUE(becomes(pid, true));
  child.send(SIGCONT);
  EXPECT_TRUE(becomes(pid, false));
  child.send(SIGKILL);
  EXPECT_TRUE(becomes(pid, true));  // a zombie, until it is reaped
  child.reap();
  EXPECT_TRUE(has_ended_or_stopped(pid));
}

// Its own line calls it a zombie.
TEST(Host, AProcessLivesAsLongAsAnyOfItsThreads) {
  const Child child([] {
    std::thread(sleep_long).detach();
    syscall(SYS_exit, 0);  // of this thread alone
  });
  ASSERT_GT(child.pid(), 0);
  const std::string line = "/proc/" + std::to_string(child.pid()) + "/stat";
  const auto is_called_zombie = [&] {
    std::ifstream file(line);
    std::string text;
    std::getline(file, text);
    return text.find(") Z ") != std::string::npos;
  };
  const Deadline until = deadline_in(20);
  while (!is_called_zombie() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(is_called_zombie());
  EXPECT_FALSE(has_ended_or_stopped(child.pid()));
  child.send(SIGKILL);
  EXPECT_TRUE(becomes(child.pid(), true));
}

}  // namespace
}  // namespace gradwire::comm::host_test
