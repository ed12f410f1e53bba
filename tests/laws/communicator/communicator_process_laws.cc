#include "tests/laws/communicator/communicator_process_laws.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <vector>

#include "base/elements.h"
#include "tests/laws/communicator/communicator_programs.h"
#include "tests/support/ended_cleanly.h"
#include "tests/support/names.h"
#include "tests/support/process_ranks.h"
#include "tests/support/short_run.h"

namespace gradwire {
namespace {

using Program = std::string (*)(Communicator& world);

void run(const ProcessJob& job, const std::vector<Program>& programs) {
  const auto outcomes = on_processes(
      job.ranks, {.node_of = job.node_of}, 120,
      [&](std::unique_ptr<Communicator> world) {
        for (const Program program : programs) {
          if (std::string fault = program(*world); !fault.empty()) return fault;
        }
        return std::string();
      },
      {}, job.backend);
  EXPECT_THAT(outcomes, ended_cleanly(job.ranks));
}

TEST_P(CommunicatorProcessLaws, Reductions) {
  run(GetParam(), {reduce_everything, reduce_large, count_bytes});
}
TEST_P(CommunicatorProcessLaws, Movements) { run(GetParam(), {move_everything, move_large}); }
TEST_P(CommunicatorProcessMessages, ManyMessages) { run(GetParam(), {send_many_large}); }
TEST_P(CommunicatorProcessMessages, ProbeWithoutEnd) { run(GetParam(), {probe_without_end}); }
TEST_P(CommunicatorProcessAhead, RunAhead) { run(GetParam(), {run_ahead}); }
TEST_P(CommunicatorProcessMessages, AnAbortAmidMessages) { run(GetParam(), {abort_amid_messages}); }
std::string sample_the_product(Communicator& world) {
  const Sizes sizes{.elems = {1, world.size() + 1, 997, 65537},
                    .stride = is_short_run() ? 29 : 13,
                    .first = 7 * world.size()};
  if (std::string fault = reduce_exactly(world, sizes); !fault.empty()) return fault;
  return move_exactly(world, sizes);
}
TEST_P(CommunicatorProcessLaws, Product) { run(GetParam(), {sample_the_product}); }
TEST_P(CommunicatorProcessLaws, Forms) {
  run(GetParam(), {work_in_place_and_apart, run_again_and_again, run_batches, reduce_fused});
}
TEST_P(CommunicatorProcessLaws, Groups) {
  run(GetParam(), {rows_and_columns, split_and_split_again, groups_of_members, end_amid_operations,
                   many_outstanding, refuse_bad_arguments});
}

// Sums until it fails, a bounded number of times; the error as text. Counted once it has begun.
std::string sum_until_error(Communicator& world, const ProcessCount& begun) {
  for (int i = 0; i < 100000; ++i) {
    std::vector<float> data(20000, 1.0f);
    auto work = world.all_reduce(view_of(std::span(data)), ReduceOp::kSum);
    const Status status = work.has_value() ? work.value().wait() : work.error();
    if (!status.ok())
      return std::string(to_string(status.code())) + ": " + std::string(status.message());
    if (i == 0) begun.come();
  }
  return "no error";
}

void signal_one_of_four(const ProcessJob& job, int signal_number) {
  constexpr std::size_t kVictim = 2;
  const ProcessCount begun;
  const auto outcomes = on_processes(
      4, {.deadline_seconds = 6, .algorithm = "auto", .node_of = job.node_of}, 60,
      [&](std::unique_ptr<Communicator> world) { return sum_until_error(*world, begun); },
      [&](const std::vector<pid_t>& pids) {
        EXPECT_TRUE(begun.await(4, 60));
        kill(pids[kVictim], signal_number);
      },
      job.backend);
  EXPECT_THAT(outcomes,
              survivors_ended_saying(4, kVictim, tells("peer lost: rank 2", "all_reduce")));
}

TEST_P(CommunicatorProcessLoss, AKilledRankIsNamedByAll) {
  signal_one_of_four(GetParam(), SIGKILL);
}
TEST_P(CommunicatorProcessLoss, AStoppedRankIsNamedByAll) {
  signal_one_of_four(GetParam(), SIGSTOP);
}

}  // namespace
}  // namespace gradwire
