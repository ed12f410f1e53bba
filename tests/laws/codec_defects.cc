// Faults found in other systems' compressors, each as a test that fails where the fault is. Numbers
// are rows of one table of 25; those of aggregation stand in aggregate_defects.cc (rows 1, 2, 3,
// 16, 20 and 24), row 23 in large_tensor_laws.cc, rows 15 and 17 in the tests of atomo and loco.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/philox.h"
#include "compress/error_feedback/ef14.h"
#include "gradwire/registry.h"
#include "tests/support/coder_ranks.h"

namespace gradwire::testing {
namespace {

using ::testing::Each;
using Vector = std::vector<double>;

StepOutcome<double> step_of(std::string_view spec, const Shape& shape,
                            const std::vector<Vector>& grads, std::uint64_t seed = 1,
                            std::uint64_t number = 0) {
  const auto method = make(spec);
  auto ranks = CoderRanks<double>::open(*method, shape, static_cast<int>(grads.size()), seed);
  EXPECT_TRUE(ranks.has_value()) << ranks.error().message();
  auto outcome = ranks.value().step(grads, number);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
  return outcome;
}

Shape flat(const Vector& x) { return Shape::vector(static_cast<std::int64_t>(x.size())); }

Vector normals(std::size_t n, std::uint64_t key = 0) {
  const RandomStream stream(2, RandomUse::kTest, key, 0, 0, 0);
  Vector x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = stream.normal(i);
  return x;
}

// The seed was the time of day.
TEST(Defect, D4_04_DrawsFollowTheSeedAlone) {
  for (const std::string spec : {"qsgd:bits=2", "terngrad", "terngrad:shared=false", "global_qsgd",
                                 "thc", "natural", "topk:k=90|qsgd:bits=2"}) {
    const Vector x = normals(1000);
    const auto first = step_of(spec, flat(x), {x, x}, 7);
    EXPECT_EQ(first.bytes, step_of(spec, flat(x), {x, x}, 7).bytes) << spec;
    EXPECT_NE(first.bytes, step_of(spec, flat(x), {x, x}, 8).bytes) << spec;
    EXPECT_NE(first.bytes, step_of(spec, flat(x), {x, x}, 7, 1).bytes) << spec;
    const auto& codes = first.bytes.back();
    EXPECT_NE(codes[0], codes[1]) << spec << ": ranks drew alike";
  }
}

// The complement of a byte mask: decoded 255 times too large.
TEST(Defect, D4_05_SignsComeBackAsLargeAsTheyWere) {
  const Vector x = normals(100);
  for (const std::string spec : {"onebit:bucket=tensor", "signsgd:bucket=tensor"}) {
    const Vector own = step_of(spec, flat(x), {x}).own[0];
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(std::signbit(own[i]), std::signbit(x[i])) << spec << i;
      EXPECT_LT(std::abs(own[i]), 2) << spec << i;
      sum += std::abs(own[i]) - std::abs(x[i]);
    }
    EXPECT_NEAR(sum, 0, 1e-6) << spec << ": the mean magnitude is not kept";
  }
}

// A factor of n, factors drawn anew on every rank and step, and 0/0 in layers of zeros.
TEST(Defect, D4_06_PowerSgdKeepsTheMeanZeroLayersAndItsWarmStart) {
  const Shape shape = Shape::matrix(6, 5);
  const Vector a = normals(30, 1);
  const Vector b = normals(30, 2);
  const auto whole = step_of("powersgd:rank=5,min_rate=0", shape, {a, b});
  for (std::size_t i = 0; i < 30; ++i) {
    EXPECT_NEAR(whole.mean[0][i], (a[i] + b[i]) / 2, 1e-9);
  }
  EXPECT_THAT(step_of("powersgd:rank=2", shape, {Vector(30), Vector(30)}).mean[0], Each(0.0));
  const auto method = make("powersgd:rank=1");
  auto ranks = CoderRanks<double>::open(*method, shape, 1);
  double first = 0;
  double last = 0;
  for (std::uint64_t step = 0; step < 20; ++step) {
    const Vector own = ranks.value().step({a}, step).own[0];
    last = 0;
    for (std::size_t i = 0; i < 30; ++i) last += (own[i] - a[i]) * (own[i] - a[i]);
    if (step == 0) first = last;
  }
  EXPECT_LT(last, first * 0.999);  // power iteration goes on from step to step
}

// Local clipping called a collective that answered nothing, and failed; there was no warm-up.
TEST(Defect, D4_07_DgcClipsOnEveryRankAndWarmsUp) {
  const Vector x = normals(400);
  double norm = 0;
  for (const double value : x) norm += value * value;
  norm = std::sqrt(norm);
  // Four ranks of one gradient: each is cut to 3 / sqrt(4).
  const auto outcome = step_of("dgc:ratio=1,clip=3", flat(x), {x, x, x, x});
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(outcome.mean[0][i], x[i] * 1.5 / norm, 1e-12) << i;
  }
  const auto small = step_of("dgc:ratio=1,clip=1000", flat(x), {x});
  EXPECT_EQ(small.own[0], x);  // below the limit: as it is
  const auto method = make("dgc:ratio=exp(0.1..0.01@8/1),sample=1");
  auto ranks = CoderRanks<double>::open(*method, flat(x), 1);
  for (std::uint64_t step = 0; step < 10; ++step) {
    const auto sent = ranks.value().step({x}, step).own[0];
    const auto zeros = std::count(sent.begin(), sent.end(), 0.0);
    EXPECT_EQ(400 - zeros, step < 8 ? 40 : 4) << step;
  }
}

// The first step's residual was missing a factor, and sums were not averages.
TEST(Defect, D4_08_ScaledSignUnderFeedbackDoesNotDependOnStepOrRanks) {
  const auto method = make("signsgd:bucket=tensor");
  const Vector x = normals(64);
  double magnitude = 0;
  for (const double value : x) magnitude += std::abs(value) / 64;
  for (const int size : {1, 4}) {
    auto ranks = CoderRanks<double>::open(
        *method, flat(x), size, 1, 77,
        [](std::unique_ptr<Coder> inner, const Shape& shape, const Compressor::Placement& where) {
          return std::move(make_ef14(std::move(inner), shape, where)).value();
        });
    const auto outcome =
        ranks.value().step(std::vector<Vector>(static_cast<std::size_t>(size), x), 0);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    for (std::size_t i = 0; i < 64; ++i) {
      EXPECT_NEAR(outcome.mean[0][i], std::copysign(magnitude, x[i]), 1e-12) << size;
    }
  }
}

// A generator of the user's was seeded anew, from a sum over the name's letters; places were drawn
// with replacement; and nothing scaled the values without error feedback.
TEST(Defect, D4_09_RandomPlacesAreOfTheTensorDistinctAndUnbiased) {
  constexpr std::size_t kElems = 200;
  const Vector ones(kElems, 1.0);
  const auto method = make("randomk:ratio=0.1,unbiased=true");
  const auto places = [&](std::string_view name, std::uint64_t step) {
    auto ranks = CoderRanks<double>::open(*method, flat(ones), 1, 1, hash_name(name));
    return ranks.value().step({ones}, step).own[0];
  };
  std::srand(7);  // NOLINT(cert-msc51-cpp): the user's, which nobody may touch
  const int untouched = std::rand();
  std::srand(7);  // NOLINT(cert-msc51-cpp)
  const Vector first = places("layer12.weight", 3);
  EXPECT_EQ(std::rand(), untouched);
  EXPECT_EQ(std::count(first.begin(), first.end(), 10.0), 20);  // 20 places, each of them once
  EXPECT_EQ(std::count(first.begin(), first.end(), 0.0), 180);
  EXPECT_NE(first, places("layer21.weight", 3));
  EXPECT_NE(first, places("layer12.weight", 4));
  EXPECT_EQ(first, places("layer12.weight", 3));
  constexpr int kSteps = 4000;
  Vector mean(kElems);
  for (int step = 0; step < kSteps; ++step) {
    const Vector own = places("w", static_cast<std::uint64_t>(step));
    for (std::size_t i = 0; i < kElems; ++i) mean[i] += own[i] / kSteps;
  }
  // Five deviations of a coin of 0.1 times 10: 3 / sqrt(4000).
  for (std::size_t i = 0; i < kElems; ++i) EXPECT_NEAR(mean[i], 1, 0.24) << i;
}

// 8 bits for every symbol of one or two.
TEST(Defect, D4_10_SymbolsTakeTheBitsTheyNeed) {
  const Vector x = normals(100'000);
  const auto bits = [&x](std::string_view spec) {
    std::size_t bytes = 0;
    for (const auto& round : step_of(spec, flat(x), {x}).bytes) bytes += round[0].size();
    return 8.0 * static_cast<double>(bytes) / static_cast<double>(x.size());
  };
  EXPECT_LE(bits("signsgd:vote=majority"), 1.0);
  EXPECT_LE(bits("signsgd:bucket=tensor"), 1.001);
  EXPECT_LE(bits("terngrad:shared=false"), 1.601);
  EXPECT_LE(bits("terngrad"), 2.001);
  EXPECT_LE(bits("qsgd:bits=2,bucket=4096"), 2.02);
}

// The threshold was compared with the largest element, not the largest magnitude.
TEST(Defect, D4_11_NegativeTensorsAreSelectedLikePositiveOnes) {
  Vector x = normals(200);
  for (double& value : x) value = -std::abs(value);
  Vector mirrored = x;
  for (double& value : mirrored) value = -value;
  for (const std::string spec : {"topk:ratio=0.05", "topk:k=3,index=gaps", "threshold:tau=2",
                                 "dgc:ratio=0.05", "cltk:ratio=0.05"}) {
    const Vector down = step_of(spec, flat(x), {x}).own[0];
    const Vector up = step_of(spec, flat(x), {mirrored}).own[0];
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(down[i], -up[i]) << spec;
    EXPECT_LT(*std::min_element(down.begin(), down.end()), -2) << spec;
  }
}

// 0/0 in a bucket of zeros.
TEST(Defect, D4_12_ABucketOfZerosStaysZeroBesideOthers) {
  for (const std::string spec :
       {"qsgd:bits=4,bucket=64", "qsgd:levels=1,norm=l2,bucket=64", "minmax:bits=4,bucket=64",
        "absmax:bits=4,bucket=64", "global_qsgd:bits=4,bucket=64", "thc:block=64",
        "terngrad:shared=false", "signsgd:bucket=64", "onebit:bucket=64", "natural", "mx", "fp8",
        "block_sparse:block=64|qsgd:bits=4,bucket=64", "threshold:tau=0.1|qsgd:bits=4",
        "randomk:ratio=0.5|qsgd:bits=4"}) {
    Vector x = normals(320);
    std::fill(x.begin() + 64, x.begin() + 192, 0.0);
    const auto outcome = step_of(spec, flat(x), {x, x});
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_TRUE(std::isfinite(outcome.mean[0][i])) << spec << " " << i;
      if (i >= 64 && i < 192) {
        ASSERT_EQ(outcome.mean[0][i], 0) << spec << " " << i;
      }
    }
  }
}

// A tie of an even number of voters was +1.
TEST(Defect, D4_13_ATieOfVotesIsZero) {
  const auto outcome =
      step_of("signsgd:vote=majority", Shape::vector(3), {{1, 2, -1}, {-3, 1, -1}});
  EXPECT_EQ(outcome.mean[0], (Vector{0, 1, -1}));
}

// Rounded up with the chance of one minus the fraction: 2.3 became 2.7.
TEST(Defect, D4_14_TheFractionIsTheChanceOfRoundingUp) {
  // Levels of 1: elements at 0.3 and 2.3 of a norm of 7 steps.
  struct Row {
    const char* spec;
    double norm;
    Vector wanted;
  };
  for (const Row& row :
       {Row{"qsgd:levels=7", 7, {2.3, -0.3, 6.7}}, Row{"global_qsgd:levels=7", 7, {2.3, -0.3, 6.7}},
        Row{"terngrad:clip=0", 1, {0.3, -0.8, 0.1}},
        Row{"terngrad:clip=0,shared=false", 1, {0.3, -0.8, 0.1}}}) {
    constexpr int kSteps = 4000;
    Vector x = row.wanted;
    x.push_back(row.norm);
    Vector mean(x.size());
    const auto method = make(row.spec);
    auto ranks = CoderRanks<double>::open(*method, flat(x), 1);
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      const Vector own = ranks.value().step({x}, step).own[0];
      for (std::size_t i = 0; i < x.size(); ++i) mean[i] += own[i] / kSteps;
    }
    // Five deviations of a coin: 0.5 / sqrt(4000).
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(mean[i], x[i], 0.04) << row.spec << i;
  }
}

// The positive end was clipped, the negative one was not.
TEST(Defect, D4_18_BothEndsOfTheScaleAreThere) {
  Vector x = normals(512);
  x[17] = 5;
  x[18] = -5;
  for (const std::string spec :
       {"absmax:bits=4", "absmax:bits=8", "minmax:bits=4", "qsgd:bits=4"}) {
    const Vector own = step_of(spec, flat(x), {x}).own[0];
    EXPECT_NEAR(own[17], 5, 1e-5) << spec;
    EXPECT_NEAR(own[18], -5, 1e-5) << spec;
  }
}

// The scale was taken over the padded number of elements.
TEST(Defect, D4_19_ScalesKnowHowManyElementsThereAre) {
  for (const std::size_t n : {1, 7, 9, 63}) {
    const Vector x(n, -0.5);
    for (const std::string spec : {"signsgd", "signsgd:bucket=tensor", "onebit"}) {
      EXPECT_THAT(step_of(spec, flat(x), {x}).own[0], Each(-0.5)) << spec << " " << n;
    }
  }
}

// One norm over a batch of matrices of the same shape.
TEST(Defect, D4_21_MatricesOfOneShapeDoNotShareANorm) {
  const auto method = make("powersgd:rank=1");
  const Shape shape = Shape::matrix(4, 3);
  for (const double size : {1.0, 1e-9, 1e9}) {
    Vector x(12);
    for (std::size_t i = 0; i < 12; ++i) {
      x[i] = size * static_cast<double>(i / 3 + 1) * (static_cast<double>(i % 3) - 0.5);
    }
    auto ranks = CoderRanks<double>::open(*method, shape, 1, 1, static_cast<std::uint64_t>(size));
    const Vector own = ranks.value().step({x}, 0).own[0];  // of rank one: exact
    for (std::size_t i = 0; i < 12; ++i) EXPECT_NEAR(own[i], x[i], 1e-9 * size);
  }
}

// The residual had the sign added where it must be subtracted.
TEST(Defect, D4_22_TheResidualIsWhatWasNotSent) {
  const auto method = make("signsgd:bucket=tensor");
  auto ranks = CoderRanks<double>::open(
      *method, Shape::vector(2), 1, 1, 77,
      [](std::unique_ptr<Coder> inner, const Shape& shape, const Compressor::Placement& place) {
        return std::move(make_ef14(std::move(inner), shape, place)).value();
      });
  ASSERT_TRUE(ranks.value().step({{3, -1}}, 0).status.ok());  // sends 2, -2
  const auto error = elements<double>(ranks.value().coder(0).state()[0].tensor);
  EXPECT_EQ(Vector(error.begin(), error.end()), (Vector{1, 1}));
}

// Scaled before the offset was taken off: nothing left where the mean is far above the range. And a
// cast before the division overflowed.
TEST(Defect, D4_25_OffsetsAndLargeValues) {
  Vector x = normals(512);
  for (double& value : x) value = 1e6 + value;
  const Vector own = step_of("minmax:bits=8", flat(x), {x}).own[0];
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  for (std::size_t i = 0; i < x.size(); ++i) {
    // Half a step, and what the scale's fp32 rounds.
    EXPECT_NEAR(own[i], x[i], (*high - *low) / 255 * 0.51 + 0.13);
  }
  const std::vector<Vector> large(4, Vector{60000, -60000});
  const auto outcome = step_of("cast:fp16", Shape::vector(2), large);
  EXPECT_NEAR(outcome.mean[0][0], 60000, 60000 * 0x1p-10);
  EXPECT_NEAR(outcome.mean[0][1], -60000, 60000 * 0x1p-10);
}

}  // namespace
}  // namespace gradwire::testing
