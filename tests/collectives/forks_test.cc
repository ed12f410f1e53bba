// What fork() leaves to a child where ranks are threads: nothing of its parent's, to wait for or to
// touch. Of processes: tests/laws/communicator/communicator_fork_laws.cc.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "collectives/cost/model.h"
#include "gradwire/communicator.h"
#include "tests/support/thread_ranks.h"

namespace gradwire::forks_test {
namespace {

constexpr unsigned kChildLimit = 20;  // seconds

// What is wrong with how a child that does this ends; it should return 0.
std::string in_child(const std::function<int()>& action) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kChildLimit);
    _exit(action());
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return "no child";
  return status == 0 ? "" : "the child ended with wait status " + std::to_string(status);
}

std::string sum_ones(Communicator& world) {
  std::vector<float> data(5000, 1.0f);
  auto work = world.all_reduce(view_of(std::span(data)), ReduceOp::kSum);
  const Status status = work.has_value() ? work.value().wait() : work.error();
  if (!status.ok()) return std::string(status.message());
  return data == std::vector<float>(5000, static_cast<float>(world.size())) ? "" : "a wrong sum";
}

// A rank's communicator, and a receive whose message has not been sent.
std::string fork_and_go_on(std::unique_ptr<Communicator> world) {
  if (std::string fault = sum_ones(*world); !fault.empty()) return fault;
  const int next = 1 - world->rank();
  std::vector<float> in(3), out(3, 2.0f);
  auto received = world->recv(view_of(std::span(in)), next);
  if (!received.has_value()) return std::string(received.error().message());
  std::optional<Work> receiving(std::move(received).value());
  const std::string fault = in_child([&] {
    const bool refused = world->barrier().error().code() == Code::kUnsupported;
    const bool waits = receiving->wait().code() == Code::kUnsupported;
    world.reset();
    // Nobody is left that could end it, and it has not ended well.
    const bool alone = receiving->wait().code() == Code::kUnsupported;
    receiving.reset();
    return (refused ? 0 : 1) + (waits ? 0 : 2) + (alone ? 0 : 4);
  });
  if (!fault.empty()) return fault;
  auto met = world->barrier();  // both have forked
  if (!met.has_value() || !met.value().wait().ok()) return "the barrier";
  auto sent = world->send(const_view_of(std::span<const float>(out)), next);
  for (const Status& status :
       {sent.has_value() ? sent.value().wait() : sent.error(), receiving->wait()}) {
    if (!status.ok()) return std::string(status.message());
  }
  if (in != out) return "another message";
  return sum_ones(*world);
}

TEST(Forks, ChildrenOfRanksThatAreThreadsTouchNothing) {
  auto made = make_inproc_communicators(2, {.deadline_seconds = 60});
  ASSERT_TRUE(made.has_value()) << made.error().message();
  const auto faults = on_threads<std::string>(2, [&](int r) {
    return fork_and_go_on(std::move(made.value()[static_cast<std::size_t>(r)]));
  });
  for (std::size_t r = 0; r < faults.size(); ++r) EXPECT_EQ(faults[r], "") << "rank " << r;
}

// The choice of an algorithm is of the whole process, and behind a lock.
TEST(Forks, AChildIsRefusedWhateverAnotherRankDidMeanwhile) {
  constexpr int kForks = 30;
  auto made = make_inproc_communicators(2, {.deadline_seconds = 60});
  ASSERT_TRUE(made.has_value()) << made.error().message();
  Communicator& world = *made.value()[0];
  std::atomic<bool> stop{false};
  std::thread other([&] {
    for (std::int64_t bytes = 1; !stop && bytes < std::int64_t{1} << 40; bytes += bytes / 8 + 1) {
      EXPECT_TRUE(made.value()[1]->algorithm_for(OpKind::kAllReduce, bytes, "auto").has_value());
    }
  });
  std::string fault;
  for (int i = 0; i < kForks && fault.empty(); ++i) {
    fault = in_child([&] {
      const bool barrier = world.barrier().error().code() == Code::kUnsupported;
      const bool choice = world.algorithm_for(OpKind::kAllReduce, 4096, "auto").error().code() ==
                          Code::kUnsupported;
      const std::vector<int> both{0, 1};
      const bool groups = world.create_group(both).error().code() == Code::kUnsupported &&
                          world.split(0, 0).error().code() == Code::kUnsupported &&
                          world.shrink().error().code() == Code::kUnsupported;
      const bool memory = world.allocate(100).error().code() == Code::kUnsupported;
      return (barrier ? 0 : 1) + (choice ? 0 : 2) + (groups ? 0 : 4) + (memory ? 0 : 8);
    });
  }
  stop = true;
  other.join();
  EXPECT_EQ(fault, "");
}

// It may make communicators of its own, whatever the parent's threads were at.
TEST(Forks, AChildChoosesForItself) {
  constexpr int kForks = 30;
  auto made = make_inproc_communicators(2, {.deadline_seconds = 60});
  ASSERT_TRUE(made.has_value()) << made.error().message();
  std::atomic<bool> stop{false};
  std::thread other([&] {
    for (std::int64_t bytes = 1; !stop; bytes = bytes < std::int64_t{1} << 40 ? 2 * bytes : 1) {
      // Links that nobody has asked about: each choice is made anew.
      made.value()[1]->set_link_parameters({.alpha = 1e-6 + 1e-12 * static_cast<double>(bytes)});
      EXPECT_TRUE(made.value()[1]->algorithm_for(OpKind::kAllReduce, bytes, "auto").has_value());
    }
  });
  std::string fault;
  for (int i = 0; i < kForks && fault.empty(); ++i) {
    fault = in_child([] {
      auto own = make_inproc_communicators(2, {.deadline_seconds = 10});
      if (!own.has_value()) return 1;
      return own.value()[0]->algorithm_for(OpKind::kAllReduce, 12345, "auto").has_value() ? 0 : 2;
    });
  }
  stop = true;
  other.join();
  EXPECT_EQ(fault, "");
}

}  // namespace
}  // namespace gradwire::forks_test
