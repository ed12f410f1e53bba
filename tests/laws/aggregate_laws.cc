// What every legal (method, way to combine, error feedback) promises, for every registered method.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "aggregate/plan/keys.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/exchange_promises.h"
#include "tests/support/fails.h"
#include "tests/support/short_run.h"

namespace gradwire::testing::aggregate_laws {
namespace {

using ::testing::Values;
using ::testing::ValuesIn;

struct Case {
  std::string method;
  std::string combine;
  bool feedback = false;
  std::string spec(const std::string& more) const {
    // The aggregator's keys stand in the first stage.
    const std::size_t end = std::min(method.find('|'), method.size());
    const std::string stage = method.substr(0, end);
    const char first = stage.find(':') == std::string::npos ? ':' : ',';
    return stage + first + "combine=" + combine + (feedback ? ",ef=ef14" : "") + "," + more +
           method.substr(end);
  }
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.spec("..."); }

std::vector<std::string> methods() {
  return {"none",
          "cast:fp16",
          "cast:bf16",
          "topk:ratio=0.05",
          "topk:ratio=0.05,index=auto",
          "topk:ratio=0.05|qsgd:bits=4,bucket=16",
          "threshold:tau=0.5",
          "randomk:ratio=0.1",
          "dgc:ratio=0.1,sample=1",
          "cltk:ratio=0.1",
          "block_sparse:block=16",
          "qsgd:bits=8",
          "qsgd:bits=4,bucket=64",
          "qsgd:bits=2",
          "qsgd:levels=1,norm=l2",
          "qsgd:bits=8@0/4@2,bucket=64",
          "minmax:bits=4",
          "absmax:bits=4,transform=hadamard",
          "lossless",
          "fp8",
          "mx",
          "natural",
          "onebit",
          "signum",
          "signsgd",
          "signsgd:bucket=tensor",
          "signsgd:scale=none",
          "signsgd:vote=majority",
          "terngrad",
          "terngrad:shared=false",
          "global_qsgd:bits=4",
          "thc",
          "powersgd:rank=2",
          "powersgd:rank=1,warm=false",
          "acpsgd:rank=2",
          "atomo:budget=2"};
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& method : methods()) {
    for (const std::string combine : {"auto", "sum", "gather", "sra"}) {
      for (const bool feedback : {false, true}) all.push_back({method, combine, feedback});
    }
  }
  return all;
}

// Read from the claims alone, independently of the plan's code.
bool legal(const Case& c) {
  const auto compressor = Registry::builtin().make(c.method);
  EXPECT_TRUE(compressor.has_value()) << c.method;
  const Traits traits = compressor.value()->traits();
  const bool linear = traits.exchange == Exchange::kAllReduceSum;
  if (c.combine == "sum" && !linear) return false;
  const bool vote = !traits.mean_is_average_of_own;
  const bool bounded =
      compressor.value()->bound(Shape::matrix(64, 64)).kind != ErrorBound::Kind::kNone;
  if (c.combine == "sra" && (!traits.elementwise || (!vote && !bounded))) return false;
  if (!c.feedback) return true;
  if (vote || !bounded || traits.own_feedback) return false;
  return !(c.combine == "sum" && size_of(traits.payload_dtype) == 2);
}

// |a - b| in rounding errors of fp32 over so many steps, of values as large as these.
void expect_close(const std::vector<double>& a, const std::vector<double>& b, int steps) {
  ASSERT_EQ(a.size(), b.size());
  double largest = 1;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i]));
  const double tolerance = 8 * steps * largest * std::numeric_limits<float>::epsilon();
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(a[i], b[i], tolerance) << "element " << i << " of " << a.size();
  }
}

std::vector<Case> cases_that_are(bool wanted) {
  std::vector<Case> all = cases();
  std::erase_if(all, [wanted](const Case& one) { return legal(one) != wanted; });
  return all;
}

class AggregateCases : public ::testing::TestWithParam<Case> {
 protected:
  Job job(int ranks, int steps, const std::string& more) const {
    Job job;
    job.compressor = GetParam().spec(more);
    job.tensors = odd_tensors();
    job.ranks = ranks;
    job.steps = steps;
    job.bucket_bytes = 4000;
    return job;
  }
};

class AggregateLaws : public AggregateCases {};      // of what is legal
class AggregateRefusals : public AggregateCases {};  // of what is not

TEST_P(AggregateRefusals, IllegalPairsAreRefusedWithAReasonAndARemedy) {
  const JobOutcome outcome = run_job(job(2, 1, "min_elems=0"));
  const std::string method = GetParam().method.substr(0, GetParam().method.find_first_of(":|"));
  EXPECT_THAT(outcome.status, ::testing::AnyOf(fails(Code::kInvalidArgument, method, "write"),
                                               fails(Code::kInvalidArgument, method, "leave")));
}

TEST_P(AggregateLaws, ReplicasAgreeBitForBitAndNothingIsLost) {
  for (const int ranks : {1, 2, 3, 4}) {
    const int many = is_short_run() ? 24 : 60;  // telescoping_laws.cc has a thousand
    const int steps = ranks == 3 ? many : 12;
    for (const std::string more : {"min_elems=100", "min_elems=0,dense_1d=false"}) {
      // Both on three ranks, and by turns on others.
      const bool turn = (more == "min_elems=100") == (ranks % 4 == 0);
      if (is_short_run() && ranks != 3 && !turn) continue;
      SCOPED_TRACE(GetParam().spec(more) + " on " + std::to_string(ranks));
      const Job the_job = job(ranks, steps, more);
      const JobOutcome outcome = run_job(the_job);
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
      EXPECT_EQ(outcome.first_difference, -1);
      if (!GetParam().feedback) continue;
      std::vector<double> kept = average_residual(the_job, outcome);
      for (std::size_t e = 0; e < kept.size(); ++e) kept[e] += outcome.sum_of_means[e];
      expect_close(kept, outcome.sum_of_averages, steps);
    }
  }
}

TEST_P(AggregateLaws, BucketsAndTheOrderOfReadyChangeNoBit) {
  expect_buckets_change_no_bit(job(3, 4, "min_elems=100"));
}

TEST_P(AggregateLaws, SaveAndRestoreInTheMiddleChangeNoBit) {
  // Momentum that a method keeps by itself would miss dense steps: refused.
  const bool keeps = Registry::builtin().make(GetParam().method).value()->traits().own_feedback;
  expect_restart_changes_no_bit(job(2, 8, keeps ? "min_elems=100" : "min_elems=100,warmup_steps=2"),
                                5);
}

TEST_P(AggregateLaws, ZeroGradientsGiveFiniteMeansAndStayEqual) {
  Job zero = job(3, 3, "min_elems=0,dense_1d=false");
  zero.gradient = [](const std::string&, int, int, std::int64_t) { return 0.0F; };
  const JobOutcome outcome = run_job(zero);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_EQ(outcome.first_difference, -1);
  // The bare sign and the vote have no zero to send: sign(0) = +1 by convention.
  const bool bare = GetParam().method.find("scale=none") != std::string::npos ||
                    GetParam().method.find("vote") != std::string::npos;
  for (const float mean : outcome.means.back()) ASSERT_EQ(mean, bare ? 1.0F : 0.0F);
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  return test_name(info.param.method + "_" + info.param.combine +
                   (info.param.feedback ? "_ef14" : ""));
}

INSTANTIATE_TEST_SUITE_P(EveryMethod, AggregateLaws, ValuesIn(cases_that_are(true)), name_of);
INSTANTIATE_TEST_SUITE_P(EveryMethod, AggregateRefusals, ValuesIn(cases_that_are(false)), name_of);

// Claims decide what is legal: one that is weakened must not take its pairs out in silence. Of 36
// methods in 4 ways, with and without feedback: `none` all 8; casts 7; 22 methods that may be
// summed or cut into slices 6, 7 that may be neither 4, the vote 3, and dgc, signum and the bare
// sign 2.
TEST(AggregateLawsCover, AsManyPairsAsThereAre) {
  EXPECT_EQ(cases_that_are(true).size(), 191U);
  EXPECT_EQ(cases_that_are(true).size() + cases_that_are(false).size(), 288U);
}

TEST(AggregateLawsCover, EveryRegisteredMethod) {
  const Registry registry = Registry::builtin();
  for (const Registry::Method& method : registry.methods()) {
    const auto listed = methods();
    EXPECT_TRUE(std::any_of(listed.begin(), listed.end(), [&](const std::string& spec) {
      return spec.substr(0, spec.find(':')) == method.name;
    })) << method.name;
  }
}

TEST(AggregateLawsAtEight, TelescopingOverAHundredSteps) {
  for (const std::string spec :
       {"topk:ratio=0.05,ef=ef14,min_elems=100", "signsgd:bucket=tensor,ef=ef14,min_elems=100",
        "powersgd:rank=1,ef=ef14,min_elems=100"}) {
    SCOPED_TRACE(spec);
    Job job;
    job.compressor = spec;
    job.tensors = odd_tensors();
    job.ranks = 8;
    job.steps = 100;
    const JobOutcome outcome = run_job(job);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    EXPECT_EQ(outcome.first_difference, -1);
    std::vector<double> kept = average_residual(job, outcome);
    for (std::size_t e = 0; e < kept.size(); ++e) kept[e] += outcome.sum_of_means[e];
    expect_close(kept, outcome.sum_of_averages, job.steps);
  }
}

// With an identity in the place of the method the residuals are what the next mean brings.
TEST(AggregateLawsReshard, FourRanksToThreeKeepTheAverageResidual) {
  for (const std::string spec : {"signsgd:ef=ef14,combine=sra,min_elems=0,dense_1d=false",
                                 "topk:ratio=0.05,ef=ef14,min_elems=0,dense_1d=false"}) {
    SCOPED_TRACE(spec);
    Job four;
    four.compressor = spec;
    four.tensors = odd_tensors();
    four.ranks = 4;
    four.steps = 7;
    const JobOutcome before = run_job(four);
    ASSERT_TRUE(before.status.ok()) << before.status.message();
    const std::vector<double> wanted = average_residual(four, before);
    EXPECT_GT(*std::max_element(wanted.begin(), wanted.end()), 0.1);  // there is something to keep

    Job three = four;
    three.ranks = 3;
    three.steps = 9;
    three.start = before.state;
    const JobOutcome after = run_job(three);
    ASSERT_TRUE(after.status.ok()) << after.status.message();
    std::vector<double> kept = average_residual(three, after);
    for (std::size_t e = 0; e < kept.size(); ++e) {
      kept[e] += after.sum_of_means[e] - wanted[e];
    }
    expect_close(kept, after.sum_of_averages, three.steps);
  }
}

}  // namespace
}  // namespace gradwire::testing::aggregate_laws
