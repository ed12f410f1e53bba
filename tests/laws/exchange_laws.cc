// What every way of combining promises beside the sums of aggregate_laws.cc: for each kind of error
// feedback equal replicas, resumption to the bit, and means that no bucketing changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/aggregate_job.h"
#include "tests/support/exchange_promises.h"
#include "tests/support/fails.h"
#include "tests/support/names.h"

namespace gradwire::testing::exchange_laws {
namespace {

using ::testing::ValuesIn;

struct Case {
  std::string spec;
  AggregateForm form = AggregateForm::kAllReduce;
};
std::string name_of(const Case& c) {
  const std::string name = test_name(c.spec);
  const bool scatters = c.form == AggregateForm::kReduceScatter;
  return c.form == AggregateForm::kAllReduce ? name : (scatters ? "scatter_" : "gather_") + name;
}
void PrintTo(const Case& c, std::ostream* out) { *out << name_of(c); }

const std::vector<std::string> kFeedback{"ef=none",
                                         "ef=ef14",
                                         "ef=ef21",
                                         "ef=ef21_sgdm",
                                         "ef=loco,ef_reset=3",
                                         "ef=loco,ef_storage=fp32",
                                         "ef=ef14,ef_storage=bf16",
                                         "ef=ef14,ef_storage=int8"};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& ef : kFeedback) {
    for (const std::string method :
         {"qsgd:bits=4,bucket=64", "qsgd:levels=1,norm=l2", "signsgd:bucket=tensor", "cast:fp16",
          "qsgd:bits=8@0/3@2,bucket=64"}) {
      all.push_back({method + ",combine=sra," + ef});
      all.push_back({method + "," + ef, AggregateForm::kReduceScatter});
      if (ef == "ef=ef21_sgdm") continue;
      all.push_back({method + "," + ef, AggregateForm::kAllGather});
    }
  }
  for (const AggregateForm form : {AggregateForm::kReduceScatter, AggregateForm::kAllGather}) {
    for (const std::string method : {"none:", "mx:", "natural:", "minmax:bits=4,"}) {
      all.push_back({method + "seed=3", form});
    }
  }
  all.push_back({"signsgd:vote=majority", AggregateForm::kReduceScatter});
  for (const std::string& ef : kFeedback) all.push_back({"topk:ratio=0.05,combine=oktopk," + ef});
  all.push_back({"topk:ratio=0.7,combine=oktopk,ef=ef14"});
  // Two levels: whole tensors, pieces of them, matrices.
  for (const std::string& ef : kFeedback) {
    all.push_back({"topk:ratio=0.05,intra_node=none," + ef});
    all.push_back({"qsgd:bits=4,bucket=64,intra_node=none," + ef});
  }
  for (const std::string spec : {"signsgd:bucket=tensor,combine=gather,intra_node=none,ef=ef14",
                                 "powersgd:rank=1,intra_node=none,ef=ef14",
                                 "topk:ratio=0.05,combine=oktopk,intra_node=none,ef=ef14",
                                 "qsgd:bits=4,intra_node=cast:bf16", "cast:bf16,intra_node=minmax",
                                 "signsgd:vote=majority,intra_node=none", "thc:intra_node=none"}) {
    all.push_back({spec});
  }
  return all;
}

bool on_two_levels(const Case& c) { return c.spec.find("intra_node=") != std::string::npos; }

// Two ranks to a node, and what is left.
std::vector<int> pairs_of(int ranks) {
  std::vector<int> node_of;
  for (int r = 0; r < ranks; ++r) node_of.push_back(r / 2);
  return node_of;
}

class ExchangeLaws : public ::testing::TestWithParam<Case> {
 protected:
  static Job job(int ranks, int steps, const std::string& more) {
    Job job;
    job.compressor = GetParam().spec + "," + more;
    job.form = GetParam().form;
    job.tensors = odd_tensors();
    job.ranks = ranks;
    job.steps = steps;
    job.bucket_bytes = 4000;
    if (on_two_levels(GetParam())) job.node_of = pairs_of(ranks);
    return job;
  }
};

TEST_P(ExchangeLaws, ReplicasAgreeBitForBit) {
  for (const int ranks : {1, 2, 5}) {
    for (const std::string more : {"min_elems=100,warmup_steps=2", "min_elems=0,dense_1d=false"}) {
      SCOPED_TRACE(more + " on " + std::to_string(ranks));
      const JobOutcome outcome = run_job(job(ranks, 6, more));
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
      EXPECT_EQ(outcome.first_difference, -1);
    }
  }
}

TEST_P(ExchangeLaws, BucketsAndTheOrderOfReadyChangeNoBit) {
  expect_buckets_change_no_bit(job(3, 5, "min_elems=0,dense_1d=false"));
}

TEST_P(ExchangeLaws, SaveAndRestoreInTheMiddleChangeNoBit) {
  expect_restart_changes_no_bit(job(3, 8, "min_elems=0,dense_1d=false"), 5);
}

TEST_P(ExchangeLaws, OtherNumbersOfRanksGoOn) {
  Job four = job(4, 3, "min_elems=0,dense_1d=false");
  const JobOutcome before = run_job(four);
  ASSERT_TRUE(before.status.ok()) << before.status.message();
  for (const int ranks : {1, 3}) {
    const bool one_node = ranks == 1 && on_two_levels(GetParam());
    if (one_node) continue;
    Job next = job(ranks, 3, "min_elems=0,dense_1d=false");
    next.start_saved = before.saved;
    const JobOutcome after = run_job(next);
    ASSERT_TRUE(after.status.ok()) << after.status.message();
    EXPECT_EQ(after.first_difference, -1) << ranks;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ExchangeLaws, ValuesIn(cases()),
                         [](const auto& info) { return name_of(info.param); });

// A thousand steps of sharded forms, pairs and two levels, saved and restored, then on three ranks:
// what was sent and what is left over is what went in.
class LongTelescoping : public ::testing::TestWithParam<Case> {};

TEST_P(LongTelescoping, NothingIsLostInAThousandStepsAndFromFourRanksToThree) {
  constexpr int kSteps = 500;
  Job four;
  four.compressor = GetParam().spec + ",ef=ef14,min_elems=0,dense_1d=false";
  four.form = GetParam().form;
  four.tensors = {{"w", Shape::matrix(10, 20)}, {"v", Shape::vector(3)}};
  four.ranks = 4;
  four.steps = kSteps;
  four.restart_after = kSteps / 2;
  if (on_two_levels(GetParam())) four.node_of = pairs_of(4);
  const JobOutcome first = run_job(four);
  ASSERT_TRUE(first.status.ok()) << first.status.message();
  Job three = four;
  three.ranks = 3;
  three.restart_after = 0;
  if (on_two_levels(GetParam())) three.node_of = pairs_of(3);
  three.start_saved = first.saved;
  three.gradient = [](const std::string& tensor, int rank, int step, std::int64_t e) {
    return default_gradient(tensor, rank, kSteps + step, e);
  };
  const JobOutcome second = run_job(three);
  ASSERT_TRUE(second.status.ok()) << second.status.message();
  const std::vector<double> residual = average_residual(three, second);
  double gap = 0;
  double all = 0;
  for (std::size_t e = 0; e < residual.size(); ++e) {
    const double total = first.sum_of_averages[e] + second.sum_of_averages[e];
    const double sent = first.sum_of_means[e] + second.sum_of_means[e];
    gap += (sent + residual[e] - total) * (sent + residual[e] - total);
    all += total * total;
  }
  EXPECT_LE(std::sqrt(gap), 1e-5 * std::sqrt(all));
}

std::vector<Case> telescoping_cases() {
  std::vector<Case> all;
  const Registry registry = Registry::builtin();
  for (const AggregateForm form : {AggregateForm::kReduceScatter, AggregateForm::kAllGather}) {
    for (const std::string spec :
         {"cast:bf16", "cast:fp16", "qsgd:bits=4,bucket=64", "qsgd:levels=1,norm=l2", "fp8:e4m3",
          "mx:e2m1", "natural:bits=8", "minmax:bits=2", "absmax:bits=2,rounding=stochastic",
          "terngrad:shared=false", "signsgd:bucket=tensor", "onebit:bucket=64"}) {
      all.push_back({spec, form});
    }
  }
  for (const std::string spec :
       {"topk:ratio=0.05,combine=oktopk", "topk:k=1,combine=oktopk",
        "topk:ratio=0.7,combine=oktopk", "topk:ratio=0.05,intra_node=none",
        "topk:ratio=0.05,combine=oktopk,intra_node=none",
        "qsgd:bits=4,bucket=64,combine=sra,intra_node=none",
        "qsgd:bits=4,combine=gather,intra_node=none", "qsgd:levels=1,norm=l2,intra_node=none",
        "signsgd:bucket=tensor,intra_node=none", "cast:bf16,intra_node=none",
        "minmax:bits=2,intra_node=none", "powersgd:rank=1,intra_node=none",
        "acpsgd:rank=1,intra_node=none", "atomo:budget=1,intra_node=none", "onebit:intra_node=none",
        "thc:intra_node=none", "global_qsgd:bits=4,intra_node=none", "terngrad:intra_node=none"}) {
    all.push_back({spec});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, LongTelescoping, ValuesIn(telescoping_cases()),
                         [](const auto& info) { return name_of(info.param); });

// Weights that move a little every step travel as differences to what everybody has.
TEST(AllGatherOfWeights, FollowsThemByDifferences) {
  Job job;
  job.compressor = "absmax:bits=4,bucket=32,min_elems=0,ef=ef21";
  job.form = AggregateForm::kAllGather;
  job.tensors = {{"w", Shape::matrix(8, 16)}};
  job.ranks = 3;
  job.steps = 200;
  const auto weight = [](int step, std::int64_t e) {
    return static_cast<float>(e % 7) - 3 + 0.001F * static_cast<float>(step);
  };
  job.gradient = [&weight](const std::string&, int, int step, std::int64_t e) {
    return weight(step, e);
  };
  const JobOutcome outcome = run_job(job);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_EQ(outcome.first_difference, -1);
  for (std::size_t e = 0; e < outcome.means.back().size(); ++e) {
    EXPECT_NEAR(outcome.means.back()[e], weight(199, static_cast<std::int64_t>(e)), 2e-3) << e;
  }
}

// Every rank's residual would be lost on one node, where nothing is compressed.
TEST(TwoLevels, StateOfSeveralNodesIsRefusedOnOne) {
  Job job;
  job.compressor = "topk:k=3,min_elems=0,ef=ef14,intra_node=none";
  job.tensors = {{"w", Shape::matrix(8, 16)}};
  job.ranks = 4;
  job.steps = 2;
  job.node_of = {0, 0, 1, 1};
  const JobOutcome before = run_job(job);
  ASSERT_TRUE(before.status.ok()) << before.status.message();
  job.node_of = {0, 0, 0, 0};
  job.start_saved = before.saved;
  const JobOutcome after = run_job(job);
  EXPECT_THAT(after.status,
              fails(Code::kInvalidArgument, "w.outer", "nodes", "one node", "intra_node="));
}

// An error quotes the rule that it refuses, whose words are no reason: what it says beside that.
std::string beyond_the_quote(const Status& status, const std::string& rule) {
  std::string text(status.message());
  for (std::size_t at = text.find(rule); at != text.npos; at = text.find(rule)) {
    text.replace(at, rule.size(), "...");
  }
  return text;
}

TEST(ShardedForms, RefuseWhatTheyCannotServe) {
  // The form, and what to write instead.
  const auto expect_refused = [](const std::string& spec, AggregateForm form, auto... words) {
    Job job;
    job.compressor = spec;
    job.form = form;
    job.tensors = {{"w", Shape::matrix(64, 64)}};
    job.ranks = 2;
    const Status status = run_job(job).status;
    EXPECT_THAT(status, fails(Code::kInvalidArgument, spec));
    const std::string name =
        form == AggregateForm::kReduceScatter ? "kReduceScatter" : "kAllGather";
    EXPECT_THAT(beyond_the_quote(status, spec), tells(name, words...));
  };
  constexpr AggregateForm kScatter = AggregateForm::kReduceScatter;
  constexpr AggregateForm kGather = AggregateForm::kAllGather;
  expect_refused("topk:k=3", kScatter, "element", "qsgd", "none");
  expect_refused("powersgd:rank=1", kGather, "element", "qsgd", "none");
  expect_refused("qsgd:bits=4,combine=sra", kScatter, "combine");
  expect_refused("signsgd:vote=majority", kGather, "vote", "qsgd");
  expect_refused("qsgd:bits=4,ef=ef21_sgdm", kGather, "ef21_sgdm", "ef=ef21");
  expect_refused("qsgd:bits=4,ef=ef14,ef_rescale_lr=true", kGather, "ef_rescale_lr");
}

}  // namespace
}  // namespace gradwire::testing::exchange_laws
