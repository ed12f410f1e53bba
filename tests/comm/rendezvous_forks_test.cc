// What a rank's fork() may do to where ranks meet: the child's copies of stores touch nothing of
// the parent's.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "gradwire/rendezvous.h"

namespace gradwire::rendezvous_forks_test {
namespace {

ConstByteSpan bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::shared_ptr<KeyValueStore> store_of(int rank, int port) {
  auto made = make_tcp_store(
      {.port = port, .rank = rank, .size = 2, .job = "forks", .timeout_seconds = 20});
  EXPECT_TRUE(made.has_value());
  return made.has_value() ? std::move(made).value() : nullptr;
}

void expect_told(KeyValueStore& from, KeyValueStore& to, std::string_view key) {
  EXPECT_TRUE(from.set(key, bytes_of("said"), deadline_in(20)).ok()) << key;
  const auto heard = to.get(key, deadline_in(20));
  ASSERT_TRUE(heard.has_value()) << heard.error().message();
  EXPECT_EQ(heard.value().size(), 4u);
}

// The wait status of a child that should end by itself; -1: it was ended.
int await(pid_t child) {
  int status = 0;
  for (int turn = 0; turn < 4000; ++turn) {
    if (waitpid(child, &status, WNOHANG) == child) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return -1;
}

TEST(RendezvousForks, AChildThatDestroysItsCopiesEndsNoStore) {
  auto server = store_of(0, 0);
  ASSERT_NE(server, nullptr);
  auto client = store_of(1, tcp_store_port(*server));
  ASSERT_NE(client, nullptr);
  expect_told(*client, *server, "before");
  const pid_t child = fork();
  if (child == 0) {
    alarm(15);
    client.reset();
    server.reset();
    _exit(0);
  }
  ASSERT_GT(child, 0);
  EXPECT_EQ(await(child), 0);
  // The client's connection is still there, and the server did not take the child's end for a
  // goodbye of rank 1.
  expect_told(*client, *server, "after");
  expect_told(*server, *client, "back");
}

}  // namespace
}  // namespace gradwire::rendezvous_forks_test
