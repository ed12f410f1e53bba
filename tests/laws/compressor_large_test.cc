// More than 2^24 elements: beyond what a 32-bit float can count. Every registered method, one step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/philox.h"
#include "gradwire/registry.h"
#include "tests/support/coder_ranks.h"

namespace gradwire::laws {
namespace {

using gradwire::testing::CoderRanks;

constexpr Shape kShape = Shape::matrix(4097, 4097);
constexpr std::size_t kBeyond = (std::size_t{1} << 24) + 1;  // a float rounds it to 2^24
static_assert(kShape.elems() > static_cast<std::int64_t>(kBeyond) + 1);

// A spec of every method; beside those that need a key, two stages and other codings.
std::vector<std::string> specs() {
  const Registry registry = Registry::builtin();
  std::vector<std::string> all{"topk:k=50,index=gaps|cast:bf16", "topk:k=50,index=bitmap",
                               "randomk:ratio=0.5"};
  for (const Registry::Method& method : registry.methods()) {
    for (const std::string keys :
         {"", ":bits=4", ":bf16", ":k=50", ":ratio=0.00001", ":rank=1", ":tau=100"}) {
      if (!registry.make(method.name + keys).has_value()) continue;
      all.push_back(method.name + keys);
      break;
    }
  }
  return all;
}

class LargeTensor : public ::testing::TestWithParam<std::string> {};

TEST_P(LargeTensor, D4_23_EveryElementHasItsPlace) {
  const auto method = Registry::builtin().make(std::string_view(GetParam()));
  ASSERT_TRUE(method.has_value()) << method.error().message();
  const Compressor& compressor = *method.value();
  // Small numbers that repeat, and one large one where indices have 25 bits.
  std::vector<std::vector<float>> grads(1);
  grads[0].resize(static_cast<std::size_t>(kShape.elems()));
  const RandomStream stream(1, RandomUse::kTest, 0, 0, 0, 0);
  for (std::size_t i = 0; i < 4096; ++i) grads[0][i] = static_cast<float>(stream.normal(i));
  for (std::size_t i = 4096; i < grads[0].size(); ++i) grads[0][i] = grads[0][i - 4096];
  const std::vector<float>& x = grads[0];
  grads[0][kBeyond] = 512;
  auto ranks = CoderRanks<float>::open(compressor, kShape, 1);
  ASSERT_TRUE(ranks.has_value()) << ranks.error().message();
  const auto outcome = ranks.value().step(grads, 1);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  const std::vector<float>& own = outcome.own[0];
  if (compressor.traits().mean_is_average_of_own) {
    for (std::size_t i = 0; i < own.size(); ++i) {
      ASSERT_NEAR(outcome.mean[0][i], own[i], 1e-5 * std::abs(own[i])) << i;
    }
  }
  if (GetParam().starts_with("randomk")) {  // any place may be drawn, and holds what stood there
    for (std::size_t i = 0; i < own.size(); ++i) ASSERT_TRUE(own[i] == 0 || own[i] == x[i]) << i;
  } else if (compressor.traits().sparse) {
    EXPECT_NEAR(own[kBeyond], 512, 4);  // D4_23: indices kept as floats
    EXPECT_LT(std::abs(own[kBeyond - 1]), 10);
    EXPECT_LT(std::abs(own[kBeyond + 1]), 10);
  }
  const ErrorBound bound = compressor.bound(kShape);
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
  // The large element, 1.5 % of all, is drawn or not.
  const double slack = GetParam().starts_with("randomk") ? 0.01 : 1e-4;
  EXPECT_LE(error, (variance ? 2 * bound.value : 1 - bound.value + slack) * size);
}

INSTANTIATE_TEST_SUITE_P(Builtin, LargeTensor, ::testing::ValuesIn(specs()), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

TEST(LargeTensorCases, EveryRegisteredMethodIsThere) {
  const std::vector<std::string> all = specs();
  const Registry registry = Registry::builtin();
  for (const Registry::Method& method : registry.methods()) {
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&method](const std::string& spec) {
      return spec.substr(0, spec.find(':')) == method.name;
    })) << method.name;
  }
}

}  // namespace
}  // namespace gradwire::laws
