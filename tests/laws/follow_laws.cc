// What happens around a step, every legal (method, way to combine, error feedback) follows: steps
// that are left out, loss scales that change, numbers that are not finite, more ranks than other
// laws have, fewer than before. The pairs are those that the registry and the plan let through.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "aggregate/plan/plan.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/exchange_promises.h"
#include "tests/support/fails.h"
#include "tests/support/short_run.h"

namespace gradwire::testing::follow_laws {
namespace {

using ::testing::ValuesIn;

const Shape kShape = Shape::matrix(12, 25);

struct Case {
  std::string method;
  std::string keys;  // the aggregator's
  std::string spec() const {
    const std::size_t end = std::min(method.find('|'), method.size());
    const char first = method.substr(0, end).find(':') == std::string::npos ? ':' : ',';
    return method.substr(0, end) + first + keys + ",min_elems=0,dense_1d=false" +
           method.substr(end);
  }
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.spec(); }

// Every registered method, with the first of these keys that it takes; and others of many kinds.
std::vector<std::string> methods() {
  std::vector<std::string> all{"cast:fp16",
                               "topk:ratio=0.1,index=auto",
                               "topk:ratio=0.1|qsgd:bits=4,bucket=16",
                               "qsgd:levels=1,norm=l2",
                               "minmax:bits=3,rounding=stochastic,transform=hadamard,bucket=128",
                               "absmax:bits=2,spikes=1",
                               "signsgd:bucket=tensor",
                               "signsgd:scale=none",
                               "signsgd:vote=majority",
                               "terngrad:shared=false",
                               "mx:e2m1",
                               "powersgd:rank=2,warm=false"};
  const Registry registry = Registry::builtin();
  for (const Registry::Method& method : registry.methods()) {
    for (const std::string keys :
         {"", ":bf16", ":bits=4", ":ratio=0.05", ":k=9", ":rank=1", ":tau=0.5"}) {
      if (!registry.make(method.name + keys).has_value()) continue;
      all.push_back(method.name + keys);
      break;
    }
  }
  return all;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& method : methods()) {
    for (const std::string combine : {"sum", "gather", "sra"}) {
      for (const std::string feedback : {"none", "ef14", "ef14,ef_storage=bf16",
                                         "ef14,ef_storage=int8", "ef21", "ef21_sgdm", "loco"}) {
        Case one{method, "combine=" + combine + ",ef=" + feedback};
        AggregatorOptions options;
        options.compressor = one.spec();
        if (read_plan(Registry::builtin(), options).has_value()) all.push_back(std::move(one));
      }
    }
  }
  return all;
}

// In a short run every method combined in every way without feedback, and with some of the kinds of
// feedback, by turns.
std::vector<Case> taken(const std::vector<Case>& all) {
  ShortRun run(4);
  std::vector<Case> some;
  for (const Case& one : all) {
    if (run.takes() || one.keys.ends_with("ef=none")) some.push_back(one);
  }
  return some;
}

class FollowCases : public ::testing::TestWithParam<Case> {
 protected:
  static Job job(int ranks, int steps) {
    Job job;
    job.compressor = GetParam().spec();
    job.tensors = {{"w", kShape}, {"twin", kShape}};
    job.ranks = ranks;
    job.steps = steps;
    return job;
  }
  // A sum of the elements themselves travels dense, and there is nothing to feed back.
  static bool feeds_back() { return feeds_back(GetParam()); }
  static Traits traits() { return compressor_of(GetParam())->traits(); }
  static ErrorBound bound() { return compressor_of(GetParam())->bound(kShape); }

 public:
  static bool feeds_back(const Case& one) {
    const bool dense = one.method == "none" && one.keys.starts_with("combine=sum");
    return !dense && one.keys.find("ef=none") == std::string::npos;
  }
  static std::unique_ptr<Compressor> compressor_of(const Case& one) {
    return std::move(Registry::builtin().make(std::string_view(one.method))).value();
  }
  static bool has_units(const Case& one) {
    return !one.method.starts_with("threshold");  // tau is in the gradient's units
  }
  static bool keeps_state(const Case& one) {
    return !feeds_back(one) && compressor_of(one)->traits().stateful;
  }
};
class FollowLaws : public FollowCases {};
class FollowUnits : public FollowCases {};     // of methods that have none of their own
class FollowOwnState : public FollowCases {};  // of methods that keep something

std::vector<Case> cases_where(bool (*wanted)(const Case& one)) {
  std::vector<Case> all = cases();
  std::erase_if(all, [wanted](const Case& one) { return !wanted(one); });
  return all;
}

// Draws and states are those of the steps that were: a resumed or unlucky run is the same run.
TEST_P(FollowLaws, StepsLeftOutChangeNoBit) {
  const Job sound = job(3, 5);
  Job unlucky = job(3, 9);
  const std::vector<int> left_out{0, 3, 4, 8};
  unlucky.overflow = [&left_out](int rank, int step) {
    return rank == step % 3 && std::find(left_out.begin(), left_out.end(), step) != left_out.end();
  };
  unlucky.gradient = [&left_out](const std::string& tensor, int rank, int step, std::int64_t e) {
    const auto before = std::lower_bound(left_out.begin(), left_out.end(), step) - left_out.begin();
    return default_gradient(tensor, rank, step - static_cast<int>(before), e);
  };
  const JobOutcome a = run_job(sound);
  const JobOutcome b = run_job(unlucky);
  ASSERT_TRUE(a.status.ok()) << a.status.message();
  ASSERT_TRUE(b.status.ok()) << b.status.message();
  EXPECT_EQ(b.first_difference, -1);
  EXPECT_EQ(b.means, a.means);
  EXPECT_EQ(b.state, a.state);
}

// Gradients in units that change from step to step: the means are the same in the new units. Signs
// without a scale have none.
TEST_P(FollowUnits, LossScalesChangeTheUnitsAlone) {
  const bool signs = bound().kind == ErrorBound::Kind::kNone && !traits().sparse;
  const auto scale = [](int step) { return step < 3 ? 2.0 : step < 6 ? 16.0 : 0.5; };
  const Job plain = job(3, 9);
  Job scaled = plain;
  scaled.loss_scale = scale;
  scaled.gradient = [&scale](const std::string& tensor, int rank, int step, std::int64_t e) {
    return static_cast<float>(scale(step)) * default_gradient(tensor, rank, step, e);
  };
  const JobOutcome a = run_job(plain);
  const JobOutcome b = run_job(scaled);
  ASSERT_TRUE(a.status.ok()) << a.status.message();
  ASSERT_TRUE(b.status.ok()) << b.status.message();
  for (int step = 0; step < plain.steps; ++step) {
    const Flat& wanted = a.means[static_cast<std::size_t>(step)];
    const Flat& mean = b.means[static_cast<std::size_t>(step)];
    const double unit = signs ? 1 : scale(step);
    for (std::size_t e = 0; e < wanted.size(); ++e) {
      ASSERT_NEAR(static_cast<double>(mean[e]) / unit, static_cast<double>(wanted[e]), 1e-5)
          << "step " << step << " element " << e;
    }
  }
}

// Either some rank names them, or all see them; what has error feedback keeps none of them.
TEST_P(FollowLaws, BadNumbersAreNamedOrSeen) {
  using Limits = std::numeric_limits<float>;
  const std::vector<std::pair<float, std::int64_t>> all{{Limits::quiet_NaN(), 0},
                                                        {-Limits::infinity(), 17},
                                                        {Limits::quiet_NaN(), kShape.elems() - 1}};
  for (const auto& [bad, place] : all) {
    Job one = job(2, 2);
    one.gradient = [bad = bad, place = place](const std::string& tensor, int rank, int step,
                                              std::int64_t e) {
      const bool here = tensor == "w" && rank == 1 && step == 1 && e == place;
      return here ? bad : default_gradient(tensor, rank, step, e);
    };
    const JobOutcome outcome = run_job(one);
    if (outcome.status.ok()) {
      EXPECT_FALSE(feeds_back());
      EXPECT_EQ(outcome.first_difference, -1);
      EXPECT_TRUE(std::any_of(outcome.means[1].begin(), outcome.means[1].end(),
                              [](float x) { return !std::isfinite(x); }));
    } else {
      const auto named = [](const Status& status) { return names(status.message(), "finite"); };
      EXPECT_TRUE(std::any_of(outcome.statuses.begin(), outcome.statuses.end(), named))
          << outcome.statuses[0].message() << "; " << outcome.statuses[1].message();
    }
  }
}

TEST_P(FollowLaws, FiveToEightRanksAgreeAndLoseNothing) {
  const int one = 5 + static_cast<int>(GetParam().spec().size() % 4);  // of a short run
  for (const int ranks : {5, 6, 7, 8}) {
    if (is_short_run() && ranks != one) continue;
    const Job many = job(ranks, 3);
    const JobOutcome outcome = run_job(many);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    EXPECT_EQ(outcome.first_difference, -1);
    if (GetParam().keys.find("ef=ef14") == std::string::npos ||
        GetParam().keys.find("storage") != std::string::npos)
      continue;
    const std::vector<double> kept = average_residual(many, outcome);
    for (std::size_t e = 0; e < kept.size(); ++e) {
      ASSERT_NEAR(kept[e] + outcome.sum_of_means[e], outcome.sum_of_averages[e], 1e-4) << e;
    }
  }
}

// What a method keeps for itself serves another number of ranks: residuals as their average, the
// rest alike on all.
TEST_P(FollowOwnState, AMethodsOwnStateServesAnotherNumberOfRanks) {
  const JobOutcome four = run_job(job(4, 5));
  ASSERT_TRUE(four.status.ok()) << four.status.message();
  Job three = job(3, 0);
  three.start = four.state;
  const JobOutcome moved = run_job(three);
  ASSERT_TRUE(moved.status.ok()) << moved.status.message();
  for (const auto& [name, values] : moved.state[0]) {
    const bool residual = name.find(".residual") != std::string::npos;
    for (std::size_t e = 0; e < values.size(); ++e) {
      double wanted = 0;
      for (const auto& old : four.state) wanted += static_cast<double>(old.at(name)[e]) / 4;
      ASSERT_NEAR(values[e], wanted, 1e-6) << name << " " << e;
      for (std::size_t r = 1; r < 3; ++r) ASSERT_EQ(moved.state[r].at(name)[e], values[e]);
      if (!residual) {
        ASSERT_EQ(values[e], four.state[3].at(name)[e]) << name << " " << e;
      }
    }
  }
  three.steps = 4;
  const JobOutcome after = run_job(three);
  ASSERT_TRUE(after.status.ok()) << after.status.message();
  EXPECT_EQ(after.first_difference, -1);
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  return test_name(info.param.method + "_" + info.param.keys);
}

INSTANTIATE_TEST_SUITE_P(EveryPair, FollowLaws, ValuesIn(taken(cases())), name_of);
INSTANTIATE_TEST_SUITE_P(EveryPair, FollowUnits,
                         ValuesIn(taken(cases_where(FollowCases::has_units))), name_of);
INSTANTIATE_TEST_SUITE_P(EveryPair, FollowOwnState, ValuesIn(cases_where(FollowCases::keeps_state)),
                         name_of);

// The plan decides which pairs there are: one that it begins to refuse must not leave in silence.
// Every way to combine has seven kinds of feedback, or none alone for 16-bit sums (three times),
// votes (three pairs), bare signs (one) and dgc (one): 8 methods in one way, 24 in two, `none` and
// the two casts in three.
TEST(FollowLawsCover, AsManyPairsAsThereAre) {
  EXPECT_EQ(cases().size(), 413U);
  EXPECT_EQ(cases_where(FollowCases::has_units).size(), 413U - 7U);  // threshold, gathered
  // dgc and signum gathered; powersgd and acpsgd gathered and summed.
  EXPECT_EQ(cases_where(FollowCases::keeps_state).size(), 6U);
}

TEST(FollowLawsCover, EveryRegisteredMethod) {
  const auto listed = cases();
  const Registry registry = Registry::builtin();
  for (const Registry::Method& method : registry.methods()) {
    EXPECT_TRUE(std::any_of(listed.begin(), listed.end(),
                            [&](const Case& one) {
                              return one.method.substr(0, one.method.find_first_of(":|")) ==
                                     method.name;
                            }))
        << method.name << ": none of the keys in methods() suits it";
  }
}

}  // namespace
}  // namespace gradwire::testing::follow_laws
