// What a rank's fork() may do while its gradients are on their way: the child's copy of the
// aggregator, with its threads and its communicator, touches nothing of the parent's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "gradwire/gradwire.h"
#include "tests/support/ended_cleanly.h"
#include "tests/support/process_ranks.h"

namespace gradwire {
namespace {

constexpr int kRanks = 2;
constexpr unsigned kChildLimit = 20;  // seconds
constexpr std::int64_t kElems = 200000;

std::string text_of(const Status& status) { return std::string(status.message()); }

// A fault of `child`, which should end by itself with status 0.
std::string await(pid_t child) {
  int status = 0;
  for (int turn = 0; turn < 5000; ++turn) {
    if (waitpid(child, &status, WNOHANG) == child) {
      return status == 0 ? "" : format("the child ended with wait status %d", status);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return "the child did not end";
}

// Between ready() and finish(), with threads of the aggregator's own.
std::string fork_amid_steps(std::unique_ptr<Communicator> world) {
  auto made = Aggregator::create(*world, Registry::builtin(),
                                 {.compressor = "qsgd:bits=8,min_elems=0", .threads = 2});
  if (!made.has_value()) return text_of(made.error());
  std::unique_ptr<Aggregator> aggregator = std::move(made).value();
  std::vector<float> gradient(kElems);
  const TensorView view(reinterpret_cast<std::byte*>(gradient.data()), Shape::matrix(500, 400),
                        DType::kF32);
  if (const Status added = aggregator->add("weight", view); !added.ok()) return text_of(added);
  for (int step = 0; step < 4; ++step) {
    // All elements are the largest of their bucket, which every code has exactly.
    std::ranges::fill(gradient, static_cast<float>(world->rank() + 1));
    if (const Status ready = aggregator->ready(0); !ready.ok()) return text_of(ready);
    const pid_t child = fork();
    if (child < 0) return "fork";
    if (child == 0) {
      alarm(kChildLimit);
      const bool inert = aggregator->ready(0).code() == Code::kUnsupported &&
                         aggregator->finish().code() == Code::kUnsupported;
      aggregator.reset();
      world.reset();
      _exit(inert ? 0 : 3);
    }
    const Status finished = aggregator->finish();
    if (std::string fault = await(child); !fault.empty()) return fault;
    if (!finished.ok()) return text_of(finished);
    const float wanted = 1.5F;
    if (std::ranges::count(gradient, wanted) != kElems)
      return format("step %d: a wrong mean", step);
  }
  return "";
}

class AggregateForks : public testing::TestWithParam<std::string> {};

TEST_P(AggregateForks, ChildrenTouchNothingOfTheirParents) {
  const auto outcomes =
      on_processes(kRanks, {.deadline_seconds = 30}, 100, fork_amid_steps, {}, GetParam());
  EXPECT_THAT(outcomes, ended_cleanly(kRanks));
}

std::vector<std::string> backends() {
  std::vector<std::string> all{"tcp", "auto"};
#ifdef GW_WITH_UCX
  all.emplace_back("ucx");
#endif
  return all;
}

INSTANTIATE_TEST_SUITE_P(Backends, AggregateForks, testing::ValuesIn(backends()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace gradwire
