// Faults found in other systems' aggregation code, each as a test that fails where the fault is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/elements.h"
#include "tests/support/aggregate_job.h"

namespace gradwire::testing::aggregate_defects {
namespace {

using ::testing::Each;

Job job_of(const std::string& compressor, std::vector<JobTensor> tensors, int ranks) {
  Job job;
  job.compressor = compressor;
  job.tensors = std::move(tensors);
  job.ranks = ranks;
  return job;
}

// After a tensor larger than the fusion buffer the last group was never reduced, and the tensors
// after it were silently left out.
TEST(Defect, D4_01_BucketLargerThanTheLimitLeavesNothingUnreduced) {
  const std::vector<JobTensor> tensors{{"first", Shape::matrix(30, 40)},
                                       {"huge", Shape::matrix(200, 300)},
                                       {"after", Shape::matrix(30, 40)},
                                       {"last", Shape::vector(7)}};
  for (const std::string combine : {"sum", "gather", "sra"}) {
    Job job = job_of("none:min_elems=0,dense_1d=false,combine=" + combine, tensors, 3);
    job.bucket_bytes = 10'000;
    const JobOutcome outcome = run_job(job);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    for (std::size_t e = 0; e < outcome.sum_of_averages.size(); ++e) {
      ASSERT_NEAR(outcome.means[0][e], outcome.sum_of_averages[e], 1e-6) << combine << " " << e;
    }
  }
}

// The leader kept unquantised values while followers got quantised ones: replicas drifted.
TEST(Defect, D4_02_OwnersHoldWhatTheyPublished) {
  for (const std::string spec : {"qsgd:bits=2,combine=sra", "signsgd:bucket=8,combine=sra",
                                 "cast:bf16,combine=sra", "qsgd:bits=4,combine=sra,ef=ef14"}) {
    for (const int ranks : {2, 3, 4}) {
      Job job = job_of(spec + ",min_elems=0", {{"w", Shape::matrix(7, 11)}}, ranks);
      job.steps = 5;
      const JobOutcome outcome = run_job(job);
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
      EXPECT_EQ(outcome.first_difference, -1) << spec << " on " << ranks;
    }
  }
}

// Every tensor that passed through the communicator became lossy.
TEST(Defect, D4_03_UntaggedTensorsStayExact) {
  Job job = job_of("*.bias=none;*=signsgd:min_elems=0,bucket=tensor",
                   {{"w", Shape::matrix(16, 16)}, {"w.bias", Shape::vector(2000)}}, 4);
  const JobOutcome outcome = run_job(job);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  bool lossy = false;
  for (std::size_t e = 0; e < outcome.sum_of_averages.size(); ++e) {
    const double error = std::abs(outcome.means[0][e] - outcome.sum_of_averages[e]);
    lossy = lossy || (e < 256 && error > 0.01);
    if (e >= 256) {
      ASSERT_LT(error, 1e-6) << e;
    }
  }
  EXPECT_TRUE(lossy) << "the tagged tensor was not compressed at all";
}

// The same, of plain operations in the middle of compressed training, of every type.
TEST(Defect, D4_03_PlainOperationsBesideAnAggregatorStayExact) {
  const auto outcomes = on_ranks(3, [](std::unique_ptr<Communicator>& communicator) -> Status {
    AggregatorOptions options;
    options.compressor = "qsgd:bits=2,min_elems=0,dense_1d=false";
    GW_ASSIGN(auto aggregator,
              Aggregator::create(*communicator, Registry::builtin(), std::move(options)));
    std::vector<float> grad(100, 1.0F);
    GW_TRY(aggregator->add("w", view_of(std::span(grad))));
    GW_TRY(aggregator->ready(0));
    const int rank = communicator->rank();
    std::vector<double> losses{1.0 / 3, rank * 1e-9};
    std::vector<std::int64_t> counts{1LL << 40, rank};
    GW_ASSIGN(Work first, communicator->all_reduce(
                              view_of(std::span(losses)), ReduceOp::kSum,
                              {.algorithm = "canonical", .deadline = std::nullopt, .stream = {}}));
    GW_ASSIGN(Work second, communicator->all_reduce(view_of(std::span(counts)), ReduceOp::kSum));
    GW_TRY(first.wait());
    GW_TRY(second.wait());
    EXPECT_EQ(losses[0], 1.0 / 3 + 1.0 / 3 + 1.0 / 3);
    EXPECT_EQ(losses[1], 0.0 + 1e-9 + 2e-9);
    EXPECT_EQ(counts, (std::vector<std::int64_t>{3LL << 40, 3}));
    return aggregator->finish();
  });
  EXPECT_THAT(outcomes, Each(::testing::Property(&Status::ok, true)));
}

// Tensors of two dimensions came out n times too large, those of one dimension did not.
TEST(Defect, D4_16_ShapesDoNotChangeTheMean) {
  for (const std::string spec :
       {"none", "signsgd:bucket=tensor,combine=gather", "signsgd:bucket=tensor,combine=sra",
        "topk:ratio=0.1", "cast:bf16", "cast:fp16,combine=sra", "cast:fp16,combine=gather"}) {
    Job job = job_of(
        spec + (spec == "none" ? ":" : ",") + "min_elems=0,dense_1d=false",
        {{"one", Shape::vector(60)}, {"two", Shape::matrix(6, 10)}, {"four", {{3, 2, 2, 5}, 4}}},
        4);
    job.gradient = [](const std::string&, int rank, int, std::int64_t e) {
      return default_gradient("same", rank, 0, e);
    };
    const JobOutcome outcome = run_job(job);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    const float* mean = outcome.means[0].data();
    EXPECT_EQ(std::memcmp(mean, mean + 60, 60 * sizeof(float)), 0) << spec;
    EXPECT_EQ(std::memcmp(mean, mean + 120, 60 * sizeof(float)), 0) << spec;
  }
}

// The same fault from the other side: equal gradients everywhere average to themselves.
TEST(Defect, D4_16_MeansDoNotGrowWithTheNumberOfRanks) {
  for (const std::string spec :
       {"none:", "cast:bf16,", "cast:fp16,", "qsgd:bits=8,", "signsgd:bucket=1,", "topk:ratio=1,",
        "powersgd:rank=8,min_rate=0,"}) {
    for (const std::string combine : {"auto", "gather"}) {
      Job job = job_of(spec + "min_elems=0,combine=" + combine, {{"w", Shape::matrix(8, 8)}}, 4);
      job.gradient = [](const std::string&, int, int, std::int64_t e) {
        return static_cast<float>(e % 9) - 4;
      };
      const JobOutcome outcome = run_job(job);
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
      for (std::size_t e = 0; e < 64; ++e) {
        // Two stages of int8 over a largest value of 4: each within 4/127.
        EXPECT_NEAR(outcome.means[0][e], static_cast<double>(e % 9) - 4, 0.07) << spec << combine;
      }
    }
  }
}

// What only runs between nodes was not tested, because the machine that tests was one node. Ranks
// say here which node they are on, and exchanges go inside and between nodes as they would.
TEST(Defect, D4_20_SeveralNodesAreTestedOnOneHost) {
  for (const std::string spec : {"none:", "qsgd:bits=8,combine=sra,", "qsgd:bits=8,combine=gather,",
                                 "signsgd:bucket=8,ef=ef14,combine=sra,"}) {
    Job job =
        job_of(spec + "min_elems=0", {{"w", Shape::matrix(30, 11)}, {"b", Shape::vector(5)}}, 4);
    job.steps = 2;
    const JobOutcome together = run_job(job);
    ASSERT_TRUE(together.status.ok()) << together.status.message();
    job.algorithm = "two_level";
    for (const std::vector<int>& nodes :
         std::vector<std::vector<int>>{{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1, 1}, {0, 1, 2, 3}}) {
      std::vector<std::vector<Flat>> means(4);
      CommunicatorOptions options;
      options.node_of = nodes;
      const auto body = [&](std::unique_ptr<Communicator>& communicator) -> Status {
        const auto rank = static_cast<std::size_t>(communicator->rank());
        GW_ASSIGN(means[rank], run_rank(job, *communicator));
        return {};
      };
      for (const Status& status : on_ranks(4, body, options)) {
        ASSERT_TRUE(status.ok()) << status.message();
      }
      for (const auto& mean : means) EXPECT_EQ(mean, means[0]) << spec;
      ASSERT_EQ(means[0].size(), 2u);
      for (std::size_t e = 0; e < means[0][1].size(); ++e) {
        ASSERT_NEAR(means[0][1][e], together.means[1][e], 1e-6) << spec << e;
      }
    }
  }
}

// One-dimensional tensors grew rows of one element with a scale each: 8 bytes where 4 had been. And
// tensors that did not fit the last chunk were dropped.
TEST(Defect, D4_24_OneDimensionalTensorsShrinkOnTheWireAndAllArrive) {
  const std::vector<JobTensor> tensors{
      {"a", Shape::vector(5000)}, {"b", Shape::vector(4999)}, {"c", Shape::vector(3)}};
  for (const std::string combine : {"gather", "sra"}) {
    Job job = job_of("qsgd:bits=8,min_elems=0,dense_1d=false,combine=" + combine, tensors, 2);
    job.bucket_bytes = 21'000;
    job.steps = 2;
    const JobOutcome outcome = run_job(job);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    for (const AggregateStats& stats : outcome.stats_of_last_step) {
      EXPECT_EQ(stats.gradient_bytes, 4u * 10'002);
      EXPECT_LT(stats.wire_bytes, stats.gradient_bytes * 0.3) << combine;
      EXPECT_GT(stats.wire_bytes, stats.gradient_bytes * 0.2) << combine;
    }
    for (std::size_t e = 0; e < outcome.sum_of_averages.size(); ++e) {
      ASSERT_NEAR(outcome.sum_of_means[e], outcome.sum_of_averages[e], 0.1) << combine << " " << e;
    }
  }
}

}  // namespace
}  // namespace gradwire::testing::aggregate_defects
