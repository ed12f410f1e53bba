// Over UCX processes the aggregator computes, bit for bit, what it computes over threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/hash.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/process_ranks.h"

namespace gradwire::testing {
namespace {

Job job_of(const std::string& compressor, const std::string& algorithm) {
  Job job;
  job.compressor = compressor;
  job.tensors = {{"a.weight", Shape::matrix(60, 70)},
                 {"a.bias", Shape::vector(60)},
                 {"b.weight", Shape::matrix(70, 90)},
                 {"b.bias", Shape::vector(90)}};
  job.ranks = 3;
  job.steps = 5;
  job.bucket_bytes = 20'000;
  job.algorithm = algorithm;
  return job;
}

std::string fingerprint(const std::vector<Flat>& means) {
  std::uint64_t hash = 0;
  for (const Flat& mean : means) hash = hash_bytes(std::as_bytes(std::span(mean)), hash);
  return std::to_string(means.size()) + " steps, " + std::to_string(hash);
}

class AggregateUcx : public ::testing::TestWithParam<std::string> {};

TEST_P(AggregateUcx, EqualsThreads) {
  const Job job = job_of(GetParam(), GetParam() == "none" ? "canonical" : "ring");
  const auto outcomes = on_processes(3, {}, 60, [&job](std::unique_ptr<Communicator> world) {
    const auto means = run_rank(job, *world);
    return means.has_value() ? fingerprint(means.value()) : std::string(means.error().message());
  });
  const JobOutcome threads = run_job(job);  // after the forks: a process with threads must not fork
  ASSERT_TRUE(threads.status.ok()) << threads.status.message();
  ASSERT_EQ(outcomes.size(), 3u);
  for (const ProcessOutcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.ended);
    EXPECT_EQ(outcome.text, fingerprint(threads.means));
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, AggregateUcx,
                         ::testing::Values("none", "cast:bf16", "qsgd:bits=4,ef=ef14",
                                           "topk:ratio=0.01,ef=ef14",
                                           "signsgd:vote=majority,combine=sra",
                                           "powersgd:rank=2,ef=ef14"));

}  // namespace
}  // namespace gradwire::testing
