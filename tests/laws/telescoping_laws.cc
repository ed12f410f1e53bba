// A thousand steps of error feedback for every registered method and every way to combine that may
// stand under it: on four ranks, saved and restored on the way, then on three. Nothing is lost: the
// means and what is left over add up to the gradients. And what is left over stays bounded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "compress/error_feedback/legality.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/exchange_promises.h"
#include "tests/support/short_run.h"

namespace gradwire::testing::telescoping_laws {
namespace {

using ::testing::ValuesIn;

constexpr int kSteps = 1000;
const Shape kShape = Shape::matrix(10, 20);

struct Pair {
  std::string method;
  std::string combine;
  std::string storage = "fp32";
};
void PrintTo(const Pair& pair, std::ostream* out) {
  *out << pair.method << " " << pair.combine << " " << pair.storage;
}

std::unique_ptr<Compressor> make(const std::string& method) {
  auto made = Registry::builtin().make(std::string_view(method));
  return made.has_value() ? std::move(made).value() : nullptr;
}

// Every method with its defaults, or as given here where it has none; and some of another kind.
std::vector<std::string> methods() {
  const std::vector<std::string> given{"cast:bf16",
                                       "cast:fp16",
                                       "topk:ratio=0.05",
                                       "topk:ratio=0.1|qsgd:bits=4,bucket=16",
                                       "topk:ratio=0.25@0/0.1@100/0.05@300/0.1@700",
                                       "qsgd:bits=exp(8..2@600/6)",
                                       "threshold:tau=1",
                                       "threshold:tau=0.3,index=auto|qsgd:bits=8",
                                       "block_sparse:block=8,index=bitmap",
                                       "block_sparse:block=16|qsgd:bits=4,bucket=16",
                                       "cltk:ratio=0.1",
                                       "cltk:ratio=0.2,index=auto|qsgd:bits=8",
                                       "randomk:ratio=0.1",
                                       "randomk:ratio=0.2,unbiased=true",
                                       "randomk:ratio=0.2|qsgd:bits=4,bucket=16",
                                       "qsgd:bits=4,bucket=64",
                                       "qsgd:bits=8",
                                       "qsgd:levels=1,norm=l2",
                                       "minmax:bits=2,rounding=stochastic",
                                       "signsgd:bucket=tensor",
                                       "powersgd:rank=1,warm=false",
                                       "terngrad:shared=false",
                                       "mx:e2m1",
                                       "absmax:bits=2,spikes=1",
                                       "acpsgd:rank=1",
                                       "atomo:budget=1"};
  std::vector<std::string> all = given;
  const Registry registry = Registry::builtin();
  for (const Registry::Method& method : registry.methods()) {
    if (make(method.name) != nullptr) all.push_back(method.name);
  }
  return all;
}

bool may_stand(const Compressor& compressor) {
  return check_pair(compressor, kShape, {.error_feedback = true}).has_value();
}

std::string spec_of(const Pair& pair) {
  const std::size_t end = std::min(pair.method.find('|'), pair.method.size());
  const std::string stage = pair.method.substr(0, end);
  const char first = stage.find(':') == std::string::npos ? ':' : ',';
  return stage + first + "combine=" + pair.combine +
         ",ef=ef14,min_elems=0,dense_1d=false,ef_storage=" + pair.storage + pair.method.substr(end);
}

// Sums of 16-bit payloads round where no residual sees it.
bool rounds_unseen(const Pair& pair) {
  return pair.combine == "sum" && pair.method.starts_with("cast:");
}

Job job_of(const Pair& pair, int ranks, int steps) {
  Job job;
  job.compressor = spec_of(pair);
  job.tensors = {{"w", kShape}};
  job.ranks = ranks;
  job.steps = steps;
  job.permute = false;
  job.allow_unsafe = rounds_unseen(pair);
  return job;
}

std::vector<Pair> pairs() {
  std::vector<Pair> all;
  for (const std::string& method : methods()) {
    const auto compressor = make(method);
    if (!may_stand(*compressor)) continue;
    const Traits traits = compressor->traits();
    all.push_back({method, "gather"});
    if (traits.exchange == Exchange::kAllReduceSum) all.push_back({method, "sum"});
    if (traits.elementwise) all.push_back({method, "sra"});
    const bool pairs = traits.sparse && traits.exchange == Exchange::kAllGather &&
                       traits.rounds == 1 && !traits.lossless && !traits.own_feedback;
    const bool plain =
        method.find('|') == std::string::npos && method.find("index=") == std::string::npos;
    if (pairs && plain) all.push_back({method, "oktopk"});
  }
  for (const char* storage : {"bf16", "int8"}) {
    for (const char* combine : {"gather", "sra"}) {
      for (const char* method :
           {"qsgd:bits=4,bucket=64", "signsgd:bucket=tensor", "minmax:bits=4"}) {
        all.push_back({method, combine, storage});
      }
    }
  }
  return all;
}

double length(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

// How far sums rounded in the payload's type may drift: one draw for every addition of a step.
double unseen(const Pair& pair, double largest) {
  const double unit = pair.method == "cast:fp16" ? 0x1p-11 : 0x1p-8;
  return 5 * std::sqrt(4.0 * kSteps) * unit * largest * std::sqrt(kShape.elems());
}

// What storing rounds has mean zero and is not carried: a draw of every rank's residual for every
// step, and under sra of the sum's, of at most half a step each (stored_residual.h).
double stored_drift(const Pair& pair, double largest) {
  if (pair.storage == "fp32") return 0;
  const double unit = pair.storage == "bf16" ? 0x1p-8 : 1.0 / 254;
  const double draws = pair.combine == "sra" ? 2 * kSteps : kSteps;
  return std::sqrt(draws * kShape.elems()) * unit * largest;
}

// Of e <- p - C(p) with E|p - C(p)|^2 <= (1 - delta)|p|^2 under gradients of at most `gradient`:
// |e| <= 2 gradient / delta (Karimireddy et al. 2019, lemma 3). A second encoding, or choice, does
// the same to gradients as large as that. Infinite where nothing is claimed for sure.
double bound_of(const Compressor& compressor, bool twice, double gradient) {
  const ErrorBound bound = compressor.bound(kShape);
  const bool variance = bound.kind == ErrorBound::Kind::kVariance;
  const double delta = !variance          ? bound.value
                       : bound.value >= 1 ? 1 / (1 + bound.value)
                                          : 1 - bound.value;
  if (!(delta > 0)) return HUGE_VAL;
  return twice ? 8 * gradient / (delta * delta) : 2 * gradient / delta;
}

class Telescoping : public ::testing::TestWithParam<Pair> {};

TEST_P(Telescoping, NothingIsLostInAThousandStepsAndFromFourRanksToThree) {
  Job four = job_of(GetParam(), 4, kSteps / 2);
  four.restart_after = kSteps / 4;
  const JobOutcome first = run_job(four);
  ASSERT_TRUE(first.status.ok()) << first.status.message();
  Job three = job_of(GetParam(), 3, kSteps / 2);
  three.start_saved = first.saved;
  // Other gradients than the first half's.
  three.gradient = [](const std::string& tensor, int rank, int step, std::int64_t e) {
    return default_gradient(tensor, rank, kSteps + step, e);
  };
  const JobOutcome second = run_job(three);
  ASSERT_TRUE(second.status.ok()) << second.status.message();
  EXPECT_EQ(first.first_difference, -1);
  EXPECT_EQ(second.first_difference, -1);

  const std::vector<double> residual = average_residual(three, second);
  std::vector<double> gap = residual;
  std::vector<double> total(gap.size());
  double largest = 0;
  for (std::size_t e = 0; e < gap.size(); ++e) {
    total[e] = first.sum_of_averages[e] + second.sum_of_averages[e];
    gap[e] += first.sum_of_means[e] + second.sum_of_means[e] - total[e];
    for (const Flat& mean : first.means) {
      largest = std::max(largest, std::abs(static_cast<double>(mean[e])));
    }
  }
  double kept = 0;
  for (const double value : residual) kept = std::max(kept, std::abs(value));
  // A residual is at most a few times as large as the last ones were on average.
  const double drift = rounds_unseen(GetParam())
                           ? unseen(GetParam(), largest)
                           : stored_drift(GetParam(), 4 * std::max(kept, 1.0));
  EXPECT_LE(length(gap), 1e-5 * length(total) + drift);
  // |g| <= 1.25 an element.
  const double gradient = 1.25 * std::sqrt(kShape.elems());
  const bool twice = GetParam().combine == "sra" || GetParam().combine == "oktopk";
  EXPECT_LE(length(residual), bound_of(*make(GetParam().method), twice, gradient));
}

std::string name_of(const ::testing::TestParamInfo<Pair>& info) {
  const std::string& storage = info.param.storage;
  return test_name(info.param.method + "_" + info.param.combine +
                   (storage == "fp32" ? "" : "_" + storage));
}

// In a short run every method in one way, and some of the others by turns.
std::vector<Pair> taken() {
  ShortRun run(3);
  std::set<std::string> met;
  std::vector<Pair> all = pairs();
  std::erase_if(all, [&](const Pair& pair) {
    const bool turn = run.takes();
    return !met.insert(pair.method).second && !turn;
  });
  return all;
}

INSTANTIATE_TEST_SUITE_P(EveryPair, Telescoping, ValuesIn(taken()), name_of);

// Claims decide which pairs there are: one that is weakened must not take its own out in silence,
// nor the bound that its residuals are held to.
TEST(TelescopingCovers, AsManyPairsAsThereAre) {
  const auto all = pairs();
  EXPECT_EQ(all.size(), 89U);
  EXPECT_EQ(std::count_if(all.begin(), all.end(),
                          [](const Pair& pair) {
                            return std::isfinite(bound_of(*make(pair.method), false, 1));
                          }),
            75);
}

TEST(TelescopingCovers, EveryRegisteredMethod) {
  const auto listed = methods();
  const Registry registry = Registry::builtin();
  for (const Registry::Method& method : registry.methods()) {
    EXPECT_TRUE(std::any_of(
        listed.begin(), listed.end(),
        [&](const std::string& spec) { return spec.substr(0, spec.find(':')) == method.name; }))
        << method.name << " has no defaults and no line in methods()";
  }
}

// Without masking dgc is linear: what was sent and what is left to send add up to the sum of the
// average momenta, and momenta average over ranks however many there are.
TEST(Dgc, LosesNoMomentumInAThousandStepsAndFromFourRanksToThree) {
  Job job;
  job.compressor = "dgc:ratio=0.05,masking=false";
  job.tensors = {{"w", kShape}};
  job.ranks = 4;
  job.steps = kSteps / 2;
  job.restart_after = kSteps / 4;
  const JobOutcome first = run_job(job);
  ASSERT_TRUE(first.status.ok()) << first.status.message();
  const int late[] = {0, kSteps};
  job.ranks = 3;
  job.start = first.state;
  job.gradient = [&late](const std::string& tensor, int rank, int step, std::int64_t e) {
    return default_gradient(tensor, rank, late[1] + step, e);
  };
  const JobOutcome second = run_job(job);
  ASSERT_TRUE(second.status.ok()) << second.status.message();
  EXPECT_EQ(second.first_difference, -1);
  std::vector<double> u(static_cast<std::size_t>(kShape.elems()));
  std::vector<double> total(u.size());
  for (const int half : {0, 1}) {
    const int ranks = half == 0 ? 4 : 3;
    for (int step = 0; step < kSteps / 2; ++step) {
      for (std::size_t e = 0; e < u.size(); ++e) {
        double mean = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          mean += static_cast<double>(default_gradient("w", rank, late[half] + step,
                                                       static_cast<std::int64_t>(e))) /
                  ranks;
        }
        u[e] = 0.9 * u[e] + mean;
        total[e] += u[e];
      }
    }
  }
  std::vector<double> gap(u.size());
  for (std::size_t e = 0; e < u.size(); ++e) {
    gap[e] = first.sum_of_means[e] + second.sum_of_means[e] - total[e];
    for (const auto& state : second.state) {
      gap[e] += static_cast<double>(state.at("w.coder.residual")[e]) / 3;
    }
  }
  EXPECT_LE(length(gap), 1e-5 * length(total));
}

// Under ef21 the result is the average of what all ranks believe sent, whoever joins or leaves;
// where that is encoded again, what its owners keep is, and results follow it.
class RunningMeans : public ::testing::TestWithParam<std::string> {
 protected:
  static Job job(int ranks) {
    Job job;
    job.compressor = GetParam() + ",min_elems=0,dense_1d=false";
    job.tensors = {{"w", kShape}};
    job.ranks = ranks;
    job.steps = 100;
    return job;
  }
  static bool twice() { return GetParam().find("combine=sra") != std::string::npos; }
  // What the results are held against, whole.
  static Flat average_of(const Job& job, const JobOutcome& outcome) {
    if (!twice()) return outcome.means.back();
    Flat all;
    for (const auto& state : outcome.state) {
      const Flat& own = state.at("w.ef21.average");
      all.insert(all.end(), own.begin(), own.end());
    }
    EXPECT_EQ(static_cast<std::int64_t>(all.size()), job.tensors[0].shape.elems());
    return all;
  }
};

TEST_P(RunningMeans, AreTheAverageOfHFromFourRanksToThree) {
  Job four = job(4);
  four.restart_after = 50;
  const JobOutcome first = run_job(four);
  ASSERT_TRUE(first.status.ok()) << first.status.message();
  Job three = job(3);
  three.start_saved = first.saved;
  const JobOutcome second = run_job(three);
  ASSERT_TRUE(second.status.ok()) << second.status.message();
  EXPECT_EQ(first.first_difference, -1);
  EXPECT_EQ(second.first_difference, -1);
  const Flat kept = average_of(three, second);
  for (std::size_t e = 0; e < kept.size(); ++e) {
    double average = 0;
    for (const auto& state : second.state) {
      average += static_cast<double>(state.at("w.ef21.h")[e]) / 3;
    }
    ASSERT_NEAR(static_cast<double>(kept[e]), average, 1e-5) << e;
  }
}

// Gradients that stay are followed until nothing lacks, through one contraction or two.
TEST_P(RunningMeans, ReachGradientsThatStay) {
  Job one = job(4);
  one.steps = 600;
  one.gradient = [](const std::string& tensor, int rank, int, std::int64_t e) {
    return default_gradient(tensor, rank, 0, e);
  };
  const JobOutcome outcome = run_job(one);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  std::vector<double> gap(outcome.means.back().size());
  std::vector<double> all(gap.size());
  for (std::size_t e = 0; e < gap.size(); ++e) {
    all[e] = outcome.sum_of_averages[e] / one.steps;
    gap[e] = static_cast<double>(outcome.means.back()[e]) - all[e];
  }
  EXPECT_LE(length(gap), 1e-3 * length(all));
}

std::string spec_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

std::vector<std::string> running() {
  std::vector<std::string> all;
  for (const std::string ef : {"ef21", "ef21_sgdm"}) {
    for (const std::string spec :
         {"topk:ratio=0.05", "signsgd:bucket=64,combine=gather", "signsgd:bucket=64,combine=sra",
          "powersgd:rank=1", "qsgd:bits=4,combine=sra", "absmax:bits=2,bucket=16,combine=sra",
          "cast:bf16,combine=sra", "acpsgd:rank=1"}) {
      all.push_back(spec + ",ef=" + ef);
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, RunningMeans, ValuesIn(running()), spec_name);

}  // namespace
}  // namespace gradwire::testing::telescoping_laws
