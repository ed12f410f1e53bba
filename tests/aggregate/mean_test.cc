// Small cases by hand: what each way to combine makes of known gradients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/aggregate_job.h"

namespace gradwire::testing::mean_test {
namespace {

using ::testing::ElementsAre;

// One tensor w of a few elements; grads[rank] at every step.
JobOutcome average(const std::string& compressor, const std::vector<Flat>& grads, int steps = 1) {
  Job job;
  job.compressor = compressor;
  job.tensors = {{"w", Shape::matrix(1, static_cast<std::int64_t>(grads[0].size()))}};
  job.ranks = static_cast<int>(grads.size());
  job.steps = steps;
  job.gradient = [&grads](const std::string&, int rank, int, std::int64_t e) {
    return grads[static_cast<std::size_t>(rank)][static_cast<std::size_t>(e)];
  };
  JobOutcome outcome = run_job(job);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_EQ(outcome.first_difference, -1);
  return outcome;
}

const std::vector<Flat> kTwo{{1, -2, 3, -4}, {2, 2, -2, -2}};
const std::vector<Flat> kThree{{1, -2, 3, -4}, {2, 2, -2, -2}, {3, 3, 2, 9}};

TEST(Mean, DenseInEveryMode) {
  for (const std::string combine : {"sum", "gather", "sra"}) {
    const std::string spec = "none:min_elems=0,combine=" + combine;
    EXPECT_THAT(average(spec, kTwo).means[0], ElementsAre(1.5F, 0, 0.5F, -3)) << combine;
    // 6 * fl(1/3) rounds to 2, 3 * fl(1/3) to 1.
    EXPECT_THAT(average(spec, kThree).means[0], ElementsAre(2, 1, 1, 1)) << combine;
  }
}

// A left fold from rank 0 in fp32, one multiplication: ((1e8 + 1) - 1e8) is 0, any other order 1.
TEST(Mean, CanonicalIsALeftFoldInRankOrder) {
  const std::vector<Flat> grads{{1e8F}, {1}, {-1e8F}};
  for (const std::string combine : {"sum", "gather", "sra"}) {
    EXPECT_THAT(average("none:min_elems=0,combine=" + combine, grads).means[0], ElementsAre(0))
        << combine;
  }
  const std::vector<Flat> tail{{1e8F}, {-1e8F}, {1}};
  for (const std::string combine : {"sum", "gather", "sra"}) {
    EXPECT_THAT(average("none:min_elems=0,combine=" + combine, tail).means[0],
                ElementsAre(1.0F / 3.0F))
        << combine;
  }
}

TEST(Mean, TopkAveragesWhatWasSent) {
  const JobOutcome outcome = average("topk:k=1,min_elems=0", kTwo);
  // Rank 0 sends -4; rank 1 the first of its four equal magnitudes.
  EXPECT_THAT(outcome.means[0], ElementsAre(1, 0, 0, -2));
}

TEST(Mean, TopkWithErrorFeedbackSendsTheRestLater) {
  const JobOutcome outcome = average("topk:k=1,min_elems=0,ef=ef14", kTwo, 2);
  EXPECT_THAT(outcome.means[0], ElementsAre(1, 0, 0, -2));
  // Step 2, rank 0: (2, -4, 6, -4): sends 6. Rank 1: (2, 4, -4, -4): sends 4.
  EXPECT_THAT(outcome.means[1], ElementsAre(0, 2, 3, 0));
  EXPECT_THAT(outcome.state[0].at("w.error"), ElementsAre(2, -4, 0, -4));
  EXPECT_THAT(outcome.state[1].at("w.error"), ElementsAre(2, 0, -4, -4));
}

TEST(Mean, ScaledSignGathered) {
  const JobOutcome outcome = average("signsgd:bucket=tensor,min_elems=0,combine=gather", kTwo);
  // Scales 2.5 and 2.
  EXPECT_THAT(outcome.means[0], ElementsAre(2.25F, -0.25F, 0.25F, -2.25F));
}

TEST(Mean, ScaledSignUnderSraWithBothResiduals) {
  const JobOutcome outcome = average("signsgd:bucket=tensor,min_elems=0,combine=sra,ef=ef14", kTwo);
  // Rank 0 owns elements 0 and 1, rank 1 owns 2 and 3.
  // Rank 0 sends (3, -4) as +-3.5, rank 1 sends (2, 2) as they are.
  // Owner 0 adds (1, -2) + (2, 2) = (3, 0), sends +-1.5: (1.5, 1.5).
  // Owner 1 adds (3.5, -3.5) + (-2, -2) = (1.5, -5.5), sends +-3.5.
  EXPECT_THAT(outcome.means[0], ElementsAre(0.75F, 0.75F, 1.75F, -1.75F));
  EXPECT_THAT(outcome.state[0].at("w.error"), ElementsAre(0, 0, -0.5F, -0.5F));
  EXPECT_THAT(outcome.state[1].at("w.error"), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(outcome.state[0].at("w.error2"), ElementsAre(1.5F, -1.5F));
  EXPECT_THAT(outcome.state[1].at("w.error2"), ElementsAre(-2, -2));
}

TEST(Mean, ScaledSignUnderSraASecondStep) {
  const JobOutcome outcome =
      average("signsgd:bucket=tensor,min_elems=0,combine=sra,ef=ef14", kTwo, 2);
  // Rank 0 adds its residual, (1, -2, 2.5, -4.5), and sends (2.5, -4.5) as +-3.5 again.
  // Owner 0 adds (1, -2) + (2, 2) + (1.5, -1.5) = (4.5, -1.5), sends +-3.
  // Owner 1 adds (3.5, -3.5) + (-2, -2) + (-2, -2) = (-0.5, -7.5), sends (-4, -4).
  EXPECT_THAT(outcome.means[1], ElementsAre(1.5F, -1.5F, -2, -2));
  EXPECT_THAT(outcome.state[0].at("w.error"), ElementsAre(0, 0, -1, -1));
  EXPECT_THAT(outcome.state[0].at("w.error2"), ElementsAre(1.5F, 1.5F));
  EXPECT_THAT(outcome.state[1].at("w.error2"), ElementsAre(3.5F, -3.5F));
}

TEST(Mean, ScaledSignUnderSraWithResidualsThatForgetHalf) {
  const JobOutcome outcome = average(
      "signsgd:bucket=tensor,min_elems=0,combine=sra,ef=loco,ef_storage=fp32,ef_beta=0.5", kTwo, 2);
  EXPECT_THAT(outcome.means[0], ElementsAre(0.75F, 0.75F, 1.75F, -1.75F));
  // Residuals are half of ef14's: rank 0 keeps (0, 0, -0.25, -0.25), the owners (0.75, -0.75) and
  // (-1, -1). Rank 0 sends (2.75, -4.25) as +-3.5.
  // Owner 0 adds (3, 0) + (0.75, -0.75), sends +-2.25: kept half of (0.75, -0.75) + (1.5, 1.5).
  // Owner 1 adds (1.5, -5.5) + (-1, -1), sends +-3.5: kept half of (-1, -1) + (-3, -3).
  EXPECT_THAT(outcome.means[1], ElementsAre(1.125F, -1.125F, 1.75F, -1.75F));
  EXPECT_THAT(outcome.state[0].at("w.error"), ElementsAre(0, 0, -0.5F, -0.5F));
  EXPECT_THAT(outcome.state[0].at("w.error2"), ElementsAre(1.125F, 0.375F));
  EXPECT_THAT(outcome.state[1].at("w.error2"), ElementsAre(-2, -2));
}

TEST(Mean, ScaledSignUnderSraByDifferencesBothWays) {
  const JobOutcome outcome =
      average("signsgd:bucket=tensor,min_elems=0,combine=sra,ef=ef21", kTwo, 2);
  EXPECT_THAT(outcome.means[0], ElementsAre(0.75F, 0.75F, 1.75F, -1.75F));
  // Rank 0 is believed to hold (3.5, -3.5) behind its own chunk and sends what lacks, (-0.5, -0.5).
  // Owner 0 keeps the average (1.5, 0), of which the results lack (0.75, -0.75).
  // Owner 1 keeps (0.75, -2.75) + (-0.25, -0.25); the results lack (-1.25, -1.25).
  EXPECT_THAT(outcome.means[1], ElementsAre(1.5F, 0, 0.5F, -3));
  EXPECT_THAT(outcome.state[0].at("w.ef21.h"), ElementsAre(1, -2, 3, -4));
  EXPECT_THAT(outcome.state[0].at("w.ef21.average"), ElementsAre(1.5F, 0));
  EXPECT_THAT(outcome.state[1].at("w.ef21.average"), ElementsAre(0.5F, -3));
  EXPECT_THAT(outcome.state[1].at("w.ef21.mean"), ElementsAre(1.5F, 0, 0.5F, -3));
}

TEST(Mean, AVoteIsTheSameGatheredAndUnderSra) {
  for (const std::string combine : {"gather", "sra"}) {
    const std::string spec = "signsgd:vote=majority,min_elems=0,combine=" + combine;
    // Ties are 0; three ranks have none.
    EXPECT_THAT(average(spec, kTwo).means[0], ElementsAre(1, 0, 0, -1)) << combine;
    EXPECT_THAT(average(spec, kThree).means[0], ElementsAre(1, 1, 1, -1)) << combine;
  }
}

TEST(Mean, WarmupTravelsDense) {
  const JobOutcome outcome = average("topk:k=1,min_elems=0,warmup_steps=2", kTwo, 3);
  EXPECT_THAT(outcome.means[0], ElementsAre(1.5F, 0, 0.5F, -3));
  EXPECT_THAT(outcome.means[1], ElementsAre(1.5F, 0, 0.5F, -3));
  EXPECT_THAT(outcome.means[2], ElementsAre(1, 0, 0, -2));
}

// QSGD with one level of the L2 norm over 4 elements: omega = min(4, 2) = 2. Every message is
// divided by 3, in both stages of sra alike.
TEST(Mean, UnbiasedMethodsOfHighVarianceAreScaledUnderErrorFeedback) {
  for (const std::string combine : {"gather", "sra"}) {
    const JobOutcome outcome =
        average("qsgd:levels=1,norm=l2,min_elems=0,ef=ef14,combine=" + combine, {{3, 0, 4, 0}});
    // Norm 5: an element decodes to 0 or 5; scaled 5/3. The residual keeps the rest.
    const Flat& mean = outcome.means[0];
    const Flat& residual =
        outcome.state[0].at(combine == std::string("sra") ? "w.error2" : "w.error");
    const Flat grad{3, 0, 4, 0};
    for (std::size_t e = 0; e < 4; ++e) {
      EXPECT_TRUE(mean[e] == 0 || std::abs(mean[e] - 5.0F / 3.0F) < 1e-6F) << mean[e];
      EXPECT_NEAR(mean[e] + residual[e], grad[e], 1e-6F);
    }
  }
}

}  // namespace
}  // namespace gradwire::testing::mean_test
