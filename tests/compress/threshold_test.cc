#include "compress/threshold/threshold.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/philox.h"
#include "base/text.h"
#include "compress/error_feedback/ef14.h"
#include "compress/little_endian.h"
#include "tests/reference/sparse_reference.h"
#include "tests/support/coder_ranks.h"
#include "tests/support/fails.h"

namespace gradwire::threshold_test {
namespace {

using testing::CoderRanks;
using testing::make;
using testing::step_of;

TEST(Threshold, HandComputed) {
  const auto outcome = step_of<float>("threshold:2", {{1, -2, 3, 0}, {-4, 2.5F, 1.9F, 1}});
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_EQ(outcome.own[0], (std::vector<float>{0, -2, 3, 0}));
  EXPECT_EQ(outcome.own[1], (std::vector<float>{-4, 2.5F, 0, 0}));
  EXPECT_EQ(outcome.mean[0], (std::vector<float>{-2, 0.25F, 1.5F, 0}));
  EXPECT_EQ(outcome.bytes[0][0].size(), 4u + 2 * 8);
}

TEST(Threshold, NothingReachesItAndEverythingDoes) {
  const auto none = step_of<double>("threshold:tau=5", {{1, -2, 3}});
  EXPECT_EQ(none.bytes[0][0].size(), 4u);
  EXPECT_EQ(none.own[0], (std::vector<double>(3)));
  const auto all = step_of<double>("threshold:tau=0.5", {{1, -2, 3}});
  EXPECT_EQ(all.bytes[0][0].size(), 4u + 3 * 12);
  EXPECT_EQ(all.own[0], (std::vector<double>{1, -2, 3}));
}

TEST(Threshold, NaNAndInfinityTravel) {
  const float inf = std::numeric_limits<float>::infinity();
  const auto outcome =
      step_of<float>("threshold:tau=100", {{1, -inf, std::nanf(""), 3}, {0, 0, 0, 0}});
  EXPECT_EQ(outcome.mean[0][1], -inf);
  EXPECT_TRUE(std::isnan(outcome.mean[1][2]));
  EXPECT_EQ(outcome.mean[0][3], 0);
}

// As the element's type rounds the threshold; one below it in the last bit stays at home.
template <typename T>
void compare_with_reference() {
  for (const double tau : {0.01, 0.7, 2.0, 1e-300}) {
    const RandomStream stream(4, RandomUse::kTest, 0, 0, 0, 0);
    std::vector<T> x(9001);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(stream.normal(i));
    x[17] = static_cast<T>(tau);
    x[18] = -static_cast<T>(tau);
    x[19] = std::nextafter(static_cast<T>(tau), T{0});
    x[20] = T{0};
    const T least = std::max(static_cast<T>(tau), std::numeric_limits<T>::denorm_min());
    const auto wanted = testing::threshold_reference<T>(x, least);
    const auto outcome = step_of<T>(format("threshold:tau=%g", tau), {x});
    std::vector<std::uint32_t> sent;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (outcome.own[0][i] == T{0}) continue;
      EXPECT_EQ(outcome.own[0][i], x[i]);
      sent.push_back(static_cast<std::uint32_t>(i));
    }
    EXPECT_EQ(sent, wanted) << tau;
    EXPECT_EQ(load_le<std::uint32_t>(outcome.bytes[0][0].data()), wanted.size());
  }
}
TEST(Threshold, MatchesTheReferenceForFloats) { compare_with_reference<float>(); }
TEST(Threshold, MatchesTheReferenceForDoubles) { compare_with_reference<double>(); }

// What is left over never reaches tau, whatever comes in.
TEST(Threshold, UnderFeedbackTheResidualStaysBelowTau) {
  const auto method = make("threshold:tau=0.25");
  const Shape shape = Shape::vector(500);
  auto ranks = CoderRanks<float>::open(
      *method, shape, 1, 1, 77,
      [](std::unique_ptr<Coder> inner, const Shape& s, const Compressor::Placement& where) {
        return std::move(make_ef14(std::move(inner), s, where)).value();
      });
  for (std::uint64_t step = 0; step < 20; ++step) {
    const RandomStream stream(5, RandomUse::kTest, step, 0, 0, 0);
    std::vector<float> x(500);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(stream.normal(i) * 0.2);
    ASSERT_TRUE(ranks.value().step({x}, step).status.ok());
    for (const float e : elements<float>(ranks.value().coder(0).state()[0].tensor)) {
      EXPECT_LT(std::abs(e), 0.25F);
    }
  }
}

TEST(Threshold, CodingsSendTheSame) {
  const RandomStream stream(8, RandomUse::kTest, 0, 0, 0, 0);
  std::vector<double> x(3000);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = stream.normal(i);
  for (const double tau : {0.1, 1.0, 3.0, 10.0}) {
    const std::string spec = format("threshold:tau=%g", tau);
    const auto plain = step_of<double>(spec, {x, x});
    for (const char* coding : {"bitmap", "gaps", "auto"}) {
      const auto coded = step_of<double>(spec + ",index=" + coding, {x, x});
      ASSERT_TRUE(coded.status.ok()) << coded.status.message();
      EXPECT_EQ(coded.mean, plain.mean) << coding;
      if (std::string_view(coding) == "auto") {
        EXPECT_LE(coded.bytes[0][0].size(), plain.bytes[0][0].size() + 1);
      }
    }
  }
}

TEST(Threshold, RefusesCountsThatAreNotThere) {
  const auto method = make("threshold:tau=1");
  auto coder = std::move(method->open(Shape::vector(6), {})).value();
  const std::vector<float> x{1, 2, 3, 4, 5, 6};
  ASSERT_TRUE(coder->begin(const_view_of(std::span(x)), 0, {}).ok());
  std::vector<std::byte> payload(100);
  ASSERT_EQ(coder->encode(0, payload, {}).value(), 4u + 6 * 8);
  const auto refusal = [&](std::uint32_t count, std::size_t bytes) {
    store_le(payload.data(), count);
    const ConstByteSpan one = ConstByteSpan(payload).first(bytes);
    return coder->absorb(0, std::span(&one, 1), {});
  };
  constexpr Code kCorrupt = Code::kCorruptPayload;
  EXPECT_TRUE(refusal(6, 52).ok());
  EXPECT_THAT(refusal(7, 60), fails(kCorrupt, "threshold", "rank 0", "7 pairs", "6"));
  EXPECT_THAT(refusal(5, 52), fails(kCorrupt, "48 bytes", "40"));
  EXPECT_THAT(refusal(0xffffffffu, 52), fails(kCorrupt, "4294967295 pairs"));
  EXPECT_THAT(refusal(6, 3), fails(kCorrupt, "3 bytes", "4"));
}

TEST(Threshold, TakesATau) {
  for (const char* spec : {"threshold", "threshold:tau=0", "threshold:tau=-1", "threshold:tau=inf",
                           "threshold:tau=1,index=zip"}) {
    EXPECT_FALSE(Registry::builtin().make(spec).has_value()) << spec;
  }
  EXPECT_EQ(make("threshold:0.010")->spec(), "threshold:tau=0.01");
  EXPECT_FALSE(make("threshold:1")->traits().fixed_payload);
}

}  // namespace
}  // namespace gradwire::threshold_test
