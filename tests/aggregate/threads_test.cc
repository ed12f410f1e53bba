// An aggregator's threads change no bit of its means and of what it keeps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/aggregate_job.h"
#include "tests/support/fails.h"

namespace gradwire::testing::threads_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

// One tensor of several parts under sra and gather, and small ones that share a bucket.
Job job_of(const std::string& compressor, int threads) {
  Job job;
  job.compressor = compressor;
  job.tensors = {{"large", Shape::matrix(400, 350)},
                 {"a", Shape::matrix(30, 40)},
                 {"b", Shape::matrix(7, 11)},
                 {"c", Shape::matrix(40, 30)},
                 {"d", Shape::vector(5)}};
  job.bucket_bytes = 100'000;
  job.ranks = 2;
  job.steps = 2;
  job.threads = threads;
  return job;
}

class AggregatorThreads : public ::testing::TestWithParam<std::string> {};

TEST_P(AggregatorThreads, ChangeNoBit) {
  const JobOutcome alone = run_job(job_of(GetParam(), 1));
  ASSERT_TRUE(alone.status.ok()) << alone.status.message();
  for (const int threads : {2, 8}) {
    const JobOutcome outcome = run_job(job_of(GetParam(), threads));
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    EXPECT_EQ(outcome.first_difference, -1);
    EXPECT_TRUE(outcome.means == alone.means) << threads << " threads";
    EXPECT_TRUE(outcome.state == alone.state) << threads << " threads";
    EXPECT_EQ(outcome.stats[0].payload_bytes, alone.stats[0].payload_bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, AggregatorThreads,
                         ::testing::Values("qsgd:bits=4,combine=sra,min_elems=0",
                                           "qsgd:bits=4,combine=sra,ef=ef14,min_elems=0",
                                           "qsgd:bits=4,combine=gather,ef=ef14,min_elems=0",
                                           "signsgd:ef=ef14,combine=gather,min_elems=0",
                                           "cast:bf16,combine=gather,min_elems=0",
                                           "topk:ratio=0.05,ef=ef14,min_elems=0",
                                           "topk:ratio=0.1,index=auto|qsgd:bits=4",
                                           "topk:ratio=0.25@0/0.05@1,ef=ef14,min_elems=0",
                                           "topk:ratio=0.05,combine=oktopk,ef=ef14,min_elems=0",
                                           "signum:min_elems=0,dense_1d=false",
                                           "global_qsgd:min_elems=0", "lossless:min_elems=0",
                                           "powersgd:rank=2,ef=ef14,min_elems=0",
                                           "*.a=none;large=minmax:bits=4;*=natural"),
                         [](const ::testing::TestParamInfo<std::string>& info) {
                           return "spec" + std::to_string(info.index);
                         });

TEST(AggregatorThreads, ErrorsAreThoseOfTheFirstParameter) {
  for (const int threads : {1, 4}) {
    Job job = job_of("topk:ratio=0.1,ef=ef14,min_elems=0", threads);
    job.ranks = 1;  // no other rank's words instead
    job.gradient = [](const std::string& tensor, int, int, std::int64_t) {
      return tensor == "a" || tensor == "c" ? HUGE_VALF : 1.0F;
    };
    const JobOutcome outcome = run_job(job);
    EXPECT_THAT(outcome.status, fails(kInvalid, "'a'"));
  }
}

TEST(AggregatorThreads, TheirNumberIsChecked) {
  for (const int threads : {0, -1, 5000}) {
    const JobOutcome outcome = run_job(job_of("none", threads));
    EXPECT_THAT(outcome.status, fails(kInvalid, "threads", std::to_string(threads), "1", "1024"));
  }
}

}  // namespace
}  // namespace gradwire::testing::threads_test
