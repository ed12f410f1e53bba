// Aggregators on two levels over NCCL, with one card that is shared: four processes are two nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/nccl/level_jobs.h"
#include "tests/support/ended_cleanly.h"
#include "tests/support/process_ranks.h"

namespace gradwire::testing {
namespace {

class NcclLevelsOnGpu : public ::testing::TestWithParam<const char*> {};

// Each rank compares its means with those of the same job on the host.
TEST_P(NcclLevelsOnGpu, HaveTheHostsBits) {
  const std::vector<int> node_of{0, 0, 1, 1};
  const Job job = host_job(GetParam(), node_of);
  const auto outcomes = on_processes(
      job.ranks, {.deadline_seconds = 60, .node_of = node_of}, 240,
      [&job](std::unique_ptr<Communicator> world) -> std::string {
        const JobOutcome host = run_job(job);
        if (!host.status.ok()) return std::string(host.status.message());
        const auto means = run_rank(there(job), *world);
        if (!means.has_value()) return std::string(means.error().message());
        return means.value() == host.means ? "" : "other means than on the host";
      },
      {}, "nccl:0");
  EXPECT_THAT(outcomes, ended_cleanly(job.ranks));
}
INSTANTIATE_TEST_SUITE_P(Sharing, NcclLevelsOnGpu,
                         ::testing::Values("none:intra_node=none",
                                           "qsgd:bits=2,ef=ef14,intra_node=none",
                                           "topk:ratio=0.05,ef=ef14,intra_node=none",
                                           "powersgd:rank=2,ef=ef14,intra_node=none"));

}  // namespace
}  // namespace gradwire::testing
