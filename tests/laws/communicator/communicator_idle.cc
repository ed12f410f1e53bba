// Waiting sleeps: a rank whose communicator is open while nothing goes on, and one that waits long,
// leave the processor alone. What is measured is processor time, not how long anything took, so a
// busy machine changes nothing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "tests/support/ended_cleanly.h"
#include "tests/support/process_ranks.h"
#include "tests/support/thread_ranks.h"

namespace gradwire {
namespace {

constexpr double kShare = 0.05;  // of one processor

// User and system time of this process and all its threads so far: /proc/self/stat, fields 14, 15.
double processor_seconds() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::vector<std::string> fields;  // from the third on
  std::string field;
  for (const char c : text.substr(name_end + 2) + " ") {
    if (c != ' ') {
      field += c;
      continue;
    }
    fields.push_back(std::exchange(field, ""));
  }
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  return (std::stod(fields.at(11)) + std::stod(fields.at(12))) / ticks;
}

Status ended(Result<Work> work) {
  if (!work.has_value()) return work.error();
  return work.value().wait();
}

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// One rank of two, of a process with `ranks` of them. Runs `step` on each and says what is wrong
// with the time that it took.
std::string measure(Communicator& world, int ranks, const char* what, double seconds,
                    const std::function<Status()>& step) {
  if (const Status together = ended(world.barrier()); !together.ok()) {
    return std::string(together.message());
  }
  sleep_for(0.1);  // of the engines, which look out for more work for a while
  const double before = processor_seconds();
  if (const Status status = step(); !status.ok()) return std::string(status.message());
  const double used = processor_seconds() - before;
  // A tick more, because that is how finely the time is known.
  if (used <= ranks * kShare * seconds + 0.01) return "";
  return format("%s for %.1f s took %.2f s of processor time", what, seconds, used);
}

std::string idle(Communicator& world, int ranks_here) {
  std::vector<float> data(1000);
  for (int i = 0; i < 20; ++i) {
    if (const Status status = ended(world.all_reduce(view_of(std::span(data)), ReduceOp::kSum));
        !status.ok()) {
      return std::string(status.message());
    }
  }
  const auto only = [&](double seconds, const std::function<Status()>& waiting) {
    if (world.rank() == 0) return waiting();
    sleep_for(seconds);
    return Status();
  };
  std::string fault = measure(world, ranks_here, "doing nothing", 2, [] {
    sleep_for(2);
    return Status();
  });
  if (!fault.empty()) return fault;
  fault = measure(world, ranks_here, "waiting in recv", 1, [&] {
    GW_TRY(only(1, [&] { return ended(world.recv(view_of(std::span(data)), 1)); }));
    if (world.rank() == 0) return Status();
    return ended(world.send(const_view_of(std::span<const float>(data)), 0));
  });
  if (!fault.empty()) return fault;
  return measure(world, ranks_here, "waiting in a barrier", 1, [&] {
    GW_TRY(only(1, [] { return Status(); }));
    return ended(world.barrier());
  });
}

class CommunicatorIdle : public testing::TestWithParam<const char*> {};

TEST_P(CommunicatorIdle, ProcessesThatWaitSleep) {
  const auto outcomes = on_processes(
      2, {}, 60, [](std::unique_ptr<Communicator> world) { return idle(*world, 1); }, {},
      GetParam());
  EXPECT_THAT(outcomes, ended_cleanly(2));
}

INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorIdle, testing::Values("auto", "tcp", "ucx"),
                         [](const auto& info) { return std::string(info.param); });

TEST(CommunicatorIdleInproc, ThreadsThatWaitSleep) {
  auto ranks = make_inproc_communicators(2);
  ASSERT_TRUE(ranks.has_value());
  const auto faults = on_threads<std::string>(
      2, [&](int r) { return idle(*ranks.value()[static_cast<std::size_t>(r)], 2); });
  for (const std::string& fault : faults) EXPECT_EQ(fault, "");
}

}  // namespace
}  // namespace gradwire
