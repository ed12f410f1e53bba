// Jobs that begin to look at the same port, as two steps of Slurm may, and what else listens there.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>

#include "comm/rendezvous/socket.h"
#include "comm/rendezvous/tcp_store.h"
#include "gradwire/rendezvous.h"
#include "tests/support/fails.h"

namespace gradwire::rendezvous_ports_test {
namespace {

using rendezvous::Fd;
using rendezvous::make_tcp_store_among;

constexpr int kPorts = 65;

ConstByteSpan bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// A listener of somebody else, whose port is the first of the jobs'.
struct Occupied {
  Occupied() {
    for (int tries = 0; tries < 20; ++tries) {
      auto made = rendezvous::listen_on("127.0.0.1", 0);
      EXPECT_TRUE(made.has_value());
      fd = std::move(made).value();
      port = rendezvous::local_port(fd.get()).value();
      if (port < 65000) return;  // room for the next ones
    }
  }
  Fd fd;
  int port = 0;
};

TcpStoreOptions options_of(const std::string& job, int rank, int port) {
  return {.port = port, .rank = rank, .size = 2, .job = job, .timeout_seconds = 20};
}

// Both ranks of a job, of which rank 1 comes first, tell each other the job's name.
void expect_meeting(const std::string& job, int port) {
  std::string heard;
  std::thread one([&] {
    const auto store = make_tcp_store_among(options_of(job, 1, port), kPorts);
    ASSERT_TRUE(store.has_value()) << store.error().message();
    const auto value = store.value()->get("name", deadline_in(20));
    ASSERT_TRUE(value.has_value()) << value.error().message();
    heard.assign(reinterpret_cast<const char*>(value.value().data()), value.value().size());
  });
  const auto store = make_tcp_store_among(options_of(job, 0, port), kPorts);
  EXPECT_TRUE(store.has_value()) << store.error().message();
  if (store.has_value()) {
    EXPECT_TRUE(store.value()->set("name", bytes_of(job), deadline_in(20)).ok());
  }
  one.join();
  EXPECT_EQ(heard, job);
}

TEST(Ports, JobsThatBeginAtOnePortDoNotMeet) {
  const Occupied first;
  std::array<std::thread, 3> jobs;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    jobs[i] = std::thread([&, i] { expect_meeting("job" + std::to_string(i), first.port); });
  }
  for (std::thread& job : jobs) job.join();
}

TEST(Ports, WhoeverElseAnswersIsPassedOver) {
  const Occupied other;
  std::thread says([&] {
    if (!rendezvous::wait_readable(other.fd.get(), deadline_in(20)).ok()) return;
    const Fd fd(::accept(other.fd.get(), nullptr, nullptr));
    (void)rendezvous::write_some(fd.get(), bytes_of("220 mail.example ESMTP\r\n"));
  });
  expect_meeting("polite", other.port);
  says.join();
}

TEST(Ports, TheLastRefusalIsToldWhenNobodyCame) {
  const Occupied silent;
  const auto strangers = make_tcp_store_among(options_of("another", 0, silent.port), kPorts);
  ASSERT_TRUE(strangers.has_value());
  TcpStoreOptions mine = options_of("mine", 1, silent.port);
  mine.timeout_seconds = 2.5;
  const auto store = make_tcp_store_among(mine, kPorts);
  ASSERT_FALSE(store.has_value());
  EXPECT_THAT(store.error(), fails(Code::kTimedOut, std::to_string(silent.port)));
  // The stranger's rank 0 waits for its own rank 1 when it goes, so that comes.
  EXPECT_TRUE(make_tcp_store_among(options_of("another", 1, silent.port), kPorts).has_value());
}

TEST(Ports, ASpanBeyondTheLastPortIsRefused) {
  const auto store = make_tcp_store_among({.port = 65535, .rank = 0, .size = 2}, 2);
  ASSERT_FALSE(store.has_value());
  EXPECT_THAT(store.error(), fails(Code::kInvalidArgument, "2 ports", "65535"));
}

// A child that lives on would keep the port from the next job, and take its ranks' calls.
TEST(Ports, AServersIsNotKeptByChildrenOfFork) {
  auto made = make_tcp_store({.size = 1, .timeout_seconds = 20});
  ASSERT_TRUE(made.has_value()) << made.error().message();
  std::shared_ptr<KeyValueStore> store = std::move(made).value();
  const int port = tcp_store_port(*store);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    while (true) pause();
  }
  store.reset();
  bool refused = false;  // as soon as the child has begun
  for (const Deadline until = deadline_in(20);
       !refused && std::chrono::steady_clock::now() < until;) {
    refused = !rendezvous::connect_to({"127.0.0.1", port}, until).has_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(refused);
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace gradwire::rendezvous_ports_test
