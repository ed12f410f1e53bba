// Ranks that share memory go on sharing it when some of them are lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/elements.h"
#include "comm/inproc/inproc_transport.h"
#include "tests/laws/communicator/communicator_process_laws.h"
#include "tests/laws/communicator/communicator_programs.h"
#include "tests/laws/communicator/shm_programs.h"
#include "tests/support/ended_cleanly.h"
#include "tests/support/process_ranks.h"
#include "tests/support/thread_ranks.h"

namespace gradwire {
namespace {

constexpr int kRanks = 4;
constexpr int kVictim = 1;

std::string sum_until_error(Communicator& world) {
  const Deadline until = deadline_in(60);
  std::vector<float> data(50000);
  while (std::chrono::steady_clock::now() < until) {
    std::ranges::fill(data, 1.0f);
    auto work = world.all_reduce(view_of(std::span(data)), ReduceOp::kSum);
    const Status status = work.has_value() ? work.value().wait() : work.error();
    if (!status.ok()) return std::string(status.message());
  }
  return "";
}

// Of ranks that share memory, in this process.
int mapped_segments() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:gradwire") != std::string::npos) ++count;
  }
  return count;
}

// What is left shares memory, hands it out, and works in it.
std::string check_left(Communicator& left, int ranks, const std::string& wanted) {
  if (left.size() != ranks) return "other survivors";
  if (left.describe().find(wanted) == std::string::npos) return left.describe();
  const bool one_host = left.shared_memory() == SharedMemory::kAllRanks;
  if (!one_host && left.shared_memory() != SharedMemory::kInsideHosts) return "no memory shared";
  const auto algorithm = left.algorithm_for(OpKind::kAllReduce, 1 << 20);
  if (!algorithm.has_value() || algorithm.value() != (one_host ? "shm" : "two_level"))
    return "algorithm";
  if (std::string fault = one_host ? count_shared_bytes(left) : ""; !fault.empty()) return fault;
  if (std::string fault = move_shared_tensors(left); !fault.empty()) return fault;
  if (std::string fault = move_to_and_from_root(left); !fault.empty()) return fault;
  auto part = left.split(0, -left.rank());
  if (!part.has_value()) return std::string(part.error().message());
  return reduce_everything(*part.value());
}

class ShmShrink : public testing::TestWithParam<ProcessJob> {};

TEST_P(ShmShrink, SurvivorsShareMemoryAnew) {
  const ProcessJob job = GetParam();
  const std::string wanted =
      job.node_of.empty() ? "collectives in shared memory" : "shared memory inside 2 hosts";
  const auto outcomes = on_processes(
      kRanks, {.deadline_seconds = 20, .node_of = job.node_of}, 100,
      [&](std::unique_ptr<Communicator> world) -> std::string {
        if (world->describe().find(wanted) == std::string::npos) return world->describe();
        auto work = world->barrier();
        if (!work.has_value() || !work.value().wait().ok()) return "barrier";
        if (world->rank() == kVictim) raise(SIGKILL);
        if (sum_until_error(*world).empty()) return "no error";
        auto left = world->shrink();
        if (!left.has_value()) return std::string(left.error().message());
        world.reset();
        if (mapped_segments() > 1) return "the segment of before is still mapped";
        return check_left(*left.value(), kRanks - 1, wanted);
      },
      {}, job.backend);
  EXPECT_THAT(outcomes, survivors_ended_saying(kRanks, kVictim, std::string()));
}

INSTANTIATE_TEST_SUITE_P(Hosts, ShmShrink,
                         testing::Values(ProcessJob{"auto", kRanks},
                                         ProcessJob{"auto", kRanks, {0, 0, 1, 1}}),
                         job_name);

// Nobody is lost, three times; the memory of before is still held by its owner.
TEST(ShmShrinkThreads, AfterAbortsToo) {
  auto transports = make_inproc_transports(kRanks);
  ASSERT_TRUE(transports.has_value());
  const auto faults = on_threads<std::string>(kRanks, [&](int r) -> std::string {
    auto made =
        make_sharing_communicator(std::move(transports.value()[static_cast<std::size_t>(r)]),
                                  {.deadline_seconds = 20, .shared_bytes = std::size_t{256} << 20});
    if (!made.has_value()) return std::string(made.error().message());
    auto world = std::move(made).value();
    for (int round = 0; round < 3; ++round) {
      auto old = world->allocate(100000);
      if (!old.has_value()) return std::string(old.error().message());
      if (r == round) world->abort("on purpose");
      if (sum_until_error(*world).empty()) return "no error";
      auto left = world->shrink();
      if (!left.has_value()) return std::string(left.error().message());
      world = std::move(left).value();
      if (std::string fault = check_left(*world, kRanks, "collectives in shared memory");
          !fault.empty())
        return fault;
    }
    return "";
  });
  for (std::size_t r = 0; r < faults.size(); ++r) EXPECT_EQ(faults[r], "") << "rank " << r;
}

}  // namespace
}  // namespace gradwire
