// More than 2^24 elements: beyond what a 32-bit float can count. One step.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/laws/law_data.h"

namespace gradwire::laws {
namespace {

using gradwire::testing::CoderRanks;

constexpr std::size_t kBeyond = (std::size_t{1} << 24) + 1;  // a float rounds it to 2^24

// Square, but where every singular value is asked for: those of so large a square take minutes,
// those of 16 rows a second.
Shape shape_for(const std::string& spec) {
  return spec.starts_with("atomo") ? Shape::matrix(16, (1 << 20) + 257) : Shape::matrix(4097, 4097);
}

// D4_23, indices kept as floats: what is sent has the place that it had. The large element is sent,
// unless places are drawn, which another step shows.
void expect_places(const Compressor& compressor, CoderRanks<float>& ranks, Shape shape,
                   const std::vector<std::vector<float>>& grads, const std::vector<float>& own) {
  const ErrorBound bound = compressor.bound(shape);
  const bool scaled = bound.kind == ErrorBound::Kind::kVariance || bound.scale != 1;
  for (std::size_t i = 0; i < own.size() && !scaled; ++i) {
    const float x = grads[0][i];
    ASSERT_TRUE(own[i] == 0 || std::abs(own[i] - x) <= 0.01F * std::abs(x)) << i;
  }
  EXPECT_LT(std::abs(own[kBeyond - 1]), 10);
  EXPECT_LT(std::abs(own[kBeyond + 1]), 10);
  if (own[kBeyond] != 0) return;
  const auto other = ranks.step(grads, 2);
  ASSERT_TRUE(other.status.ok()) << other.status.message();
  EXPECT_NE(other.own[0], own) << "the largest element is left out, and not by chance";
}

TEST_P(LargeTensorLaws, D4_23_EveryElementHasItsPlace) {
  // Small numbers that repeat, and one large one where indices have 25 bits.
  std::vector<std::vector<float>> grads(1);
  const Shape shape = shape_for(GetParam().one.spec);
  grads[0].resize(static_cast<std::size_t>(shape.elems()));
  ASSERT_GT(grads[0].size(), kBeyond + 1);
  const RandomStream stream(1, RandomUse::kTest, 0, 0, 0, 0);
  for (std::size_t i = 0; i < 4096; ++i) grads[0][i] = static_cast<float>(stream.normal(i));
  for (std::size_t i = 4096; i < grads[0].size(); ++i) grads[0][i] = grads[0][i - 4096];
  const std::vector<float>& x = grads[0];
  grads[0][kBeyond] = 512;
  auto ranks = CoderRanks<float>::open(compressor(), shape, 1);
  ASSERT_TRUE(ranks.has_value()) << ranks.error().message();
  const auto outcome = ranks.value().step(grads, 1);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  const std::vector<float>& own = outcome.own[0];
  if (compressor().traits().mean_is_average_of_own) {
    for (std::size_t i = 0; i < own.size(); ++i) {
      const double near = 1e-5 * std::abs(own[i]);
      if (std::abs(static_cast<double>(outcome.mean[0][i]) - own[i]) <= near) continue;
      ASSERT_NEAR(outcome.mean[0][i], own[i], near) << i;
    }
  }
  if (compressor().traits().sparse) expect_places(compressor(), ranks.value(), shape, grads, own);
  const ErrorBound bound = compressor().bound(shape);
  if (bound.kind == ErrorBound::Kind::kNone) return;
  double error = 0;
  double size = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double d = static_cast<double>(x[i]) - bound.scale * static_cast<double>(own[i]);
    error += d * d;
    size += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  // One draw over so many elements: a few parts in a thousand around its mean, twice to be sure.
  const bool variance = bound.kind == ErrorBound::Kind::kVariance;
  // Where places are drawn, the large element, 1.5 % of all, is among them or not.
  const double slack = compressor().traits().sparse ? 0.01 : 1e-4;
  EXPECT_LE(error, (variance ? 2 * bound.value : 1 - bound.value + slack) * size);
}

}  // namespace

std::vector<CompressorSubject> large_subjects(const Registry& registry,
                                              const std::vector<std::string>& specs) {
  const auto shared = std::make_shared<const Registry>(registry);
  std::vector<CompressorSubject> all;
  for (const std::string& spec : specs) all.push_back({shared, {spec}, DType::kF32});
  return all;
}

}  // namespace gradwire::laws
