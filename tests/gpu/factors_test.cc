// powersgd and acpsgd on a device: the host's factors, means, residuals and judgements, bit for
// bit.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compress/error_feedback/feedback.h"
#include "tests/gpu/device_pair.h"
#include "tests/gpu/hosted_method.h"
#include "tests/support/coder_ranks.h"
#include "tests/support/fails.h"

namespace gradwire::factors_test {
namespace {

using gpu::bits_of;
using gpu::HostedMethod;
using gpu::kOnHost;
using gpu::kStream;
using gpu::on_device;
using gpu::OnDevice;
using testing::CoderRanks;
using testing::make;
using testing::normals;

constexpr int kRanks = 2;

struct FactorCase {
  const char* spec;
  std::int64_t a;
  std::int64_t c;
};

// One row, one column; rows that begin at 16 bytes and others; several blocks of columns, of rows,
// of directions; more directions than one pass serves, and than the factor has at hand; dense.
const FactorCase kCases[] = {{"powersgd:rank=1,min_rate=0", 1, 9},
                             {"powersgd:rank=1,min_rate=0", 5, 1},
                             {"powersgd:rank=2", 40, 64},
                             {"powersgd:rank=4", 33, 37},
                             {"powersgd:rank=4,warm=false", 600, 20},
                             {"powersgd:rank=3,min_rate=0", 5, 9001},
                             {"powersgd:rank=5,min_rate=0", 9, 4100},
                             {"powersgd:rank=13,min_rate=0", 300, 52},
                             {"powersgd:rank=20,min_rate=0", 30, 21},
                             {"powersgd:rank=4", 6, 7},
                             {"acpsgd:rank=1,min_rate=0", 1, 9},
                             {"acpsgd:rank=2", 300, 64},
                             {"acpsgd:rank=7,min_rate=0", 33, 4101},
                             {"acpsgd:rank=4", 3, 4}};

struct Pair {
  std::unique_ptr<Compressor> method;
  std::unique_ptr<Compressor> hosted;
  Result<CoderRanks<float>> here;
  Result<CoderRanks<float>> there;
};
Pair open_pair(const std::string& spec, const Shape& shape, bool feedback) {
  auto method = make(spec);
  const auto decorate = [feedback](std::unique_ptr<Coder> inner, const Shape& of,
                                   const Compressor::Placement& where) {
    return feedback ? make_feedback(std::move(inner), of, where, {}, 1)
                    : Result<std::unique_ptr<Coder>>(std::move(inner));
  };
  const auto wrap = [decorate](std::unique_ptr<Coder> inner, const Shape& of,
                               const Compressor::Placement& where) {
    return std::move(decorate(std::move(inner), of, where)).value();
  };
  std::unique_ptr<Compressor> hosted = std::make_unique<HostedMethod>(make(spec), decorate);
  auto here = CoderRanks<float>::open(*method, shape, kRanks, 1, 77, wrap);
  auto there = CoderRanks<float>::open(*hosted, shape, kRanks);
  return {std::move(method), std::move(hosted), std::move(here), std::move(there)};
}

std::vector<std::vector<float>> gradients(const Shape& shape, std::uint64_t step) {
  std::vector<std::vector<float>> all;
  for (std::uint64_t rank = 0; rank < kRanks; ++rank) {
    all.push_back(normals<float>(static_cast<std::size_t>(shape.elems()), 10 * step + rank));
  }
  return all;
}

// Steps of both, which must agree in all that is sent and kept.
void expect_same_steps(Pair& pair, const std::vector<std::vector<std::vector<float>>>& steps) {
  ASSERT_TRUE(pair.here.has_value()) << pair.here.error().message();
  ASSERT_TRUE(pair.there.has_value()) << pair.there.error().message();
  for (std::uint64_t step = 0; step < steps.size(); ++step) {
    const auto here = pair.here.value().step(steps[step], step);
    const auto there = pair.there.value().step(steps[step], step);
    ASSERT_TRUE(here.status.ok()) << here.status.message();
    ASSERT_TRUE(there.status.ok()) << there.status.message();
    EXPECT_EQ(there.bytes, here.bytes) << "step " << step;
    EXPECT_EQ(there.own, here.own) << "step " << step;
    EXPECT_EQ(there.mean, here.mean) << "step " << step;
  }
  for (int r = 0; r < kRanks; ++r) {
    const auto kept = pair.here.value().coder(r).state();
    const auto kept_there = pair.there.value().coder(r).state();
    ASSERT_EQ(kept_there.size(), kept.size());
    for (std::size_t i = 0; i < kept.size(); ++i) {
      EXPECT_EQ(kept_there[i].name, kept[i].name);
      EXPECT_TRUE(std::ranges::equal(kept_there[i].tensor.bytes(), kept[i].tensor.bytes()))
          << kept[i].name;
    }
  }
}

TEST(DeviceFactors, HaveTheHostsBits) {
  for (const FactorCase& one : kCases) {
    for (const bool feedback : {false, true}) {
      SCOPED_TRACE(std::string(one.spec) + " of " + std::to_string(one.a) + " x " +
                   std::to_string(one.c) + (feedback ? ", ef14" : ""));
      const Shape shape = Shape::matrix(one.a, one.c);
      Pair pair = open_pair(one.spec, shape, feedback);
      expect_same_steps(pair, {gradients(shape, 0), gradients(shape, 1), gradients(shape, 2)});
    }
  }
}

// Directions that are zero, that depend on one another, and that nearly do, which takes a second
// round: rows of M along one direction but for a little.
TEST(DeviceFactors, DependentDirectionsAreTheHosts) {
  const Shape shape = Shape::matrix(40, 60);
  const auto elems = static_cast<std::size_t>(shape.elems());
  const std::vector<float> noise = normals<float>(elems, 1);
  for (const double rest : {0.0, 1e-7, 3e-5, 2e-4, 1e-3, 1.0}) {
    SCOPED_TRACE(rest);
    std::vector<float> m(elems);
    for (std::size_t i = 0; i < elems; ++i) {
      m[i] = static_cast<float>(std::cos(double(i / 60)) * std::sin(double(i % 60)) +
                                rest * double(noise[i]));
    }
    const std::vector<float> zero(elems);
    for (const char* spec : {"powersgd:rank=4", "acpsgd:rank=3"}) {
      Pair pair = open_pair(spec, shape, false);
      expect_same_steps(pair, {{m, m}, {zero, zero}, {m, zero}, {m, m}});
    }
  }
}

// Payloads, gradients and residuals that begin anywhere: of each step up to Q, with and without a
// residual, and what is left.
TEST(DeviceFactors, MemoryMayBeginAnywhere) {
  const Shape shape = Shape::matrix(70, 52);
  const auto elems = static_cast<std::size_t>(shape.elems());
  const auto method = make("powersgd:rank=3");
  const std::vector<float> grad = normals<float>(elems, 1);
  const std::vector<float> residual = normals<float>(elems, 2);
  for (const std::size_t skip : {std::size_t{0}, std::size_t{4}, std::size_t{12}}) {
    auto here = method->open(shape, kOnHost);
    auto there = method->open(shape, on_device());
    ASSERT_TRUE(here.has_value() && there.has_value());
    std::vector<float> next(elems);
    std::vector<float> mean(elems);
    const OnDevice grad_there = gpu::uploaded(grad, skip);
    const OnDevice residual_there = gpu::uploaded(residual, skip);
    const OnDevice next_there(elems * sizeof(float), skip);
    const OnDevice mean_there(elems * sizeof(float), skip);
    const Feedback kept{const_view_of<float>(residual), view_of<float>(next), 0.5};
    const Feedback kept_there{residual_there.tensor<float>(), next_there.tensor<float>(), 0.5};
    ASSERT_TRUE(here.value()->begin_with_feedback(const_view_of<float>(grad), kept, 0, {}).ok());
    ASSERT_TRUE(there.value()
                    ->begin_with_feedback(grad_there.tensor<float>(), kept_there, 0, kStream)
                    .ok());
    std::vector<std::byte> sums[2];  // lent until finish()
    std::vector<OnDevice> sums_there;
    for (int round = 0; round < 2; ++round) {
      const std::size_t room = method->max_payload_bytes(shape, DType::kF32, round);
      std::vector<std::byte>& sum = sums[round];
      sum.resize(room);
      const OnDevice payload(room, skip == 0 ? 0 : 3);
      const auto wrote = there.value()->encode(round, payload.bytes(), kStream);
      ASSERT_TRUE(here.value()->encode(round, sum, {}).has_value());
      ASSERT_TRUE(wrote.has_value()) << wrote.error().message();
      EXPECT_EQ(wrote.value(), room);
      EXPECT_EQ(payload.read(), sum);
      sums_there.emplace_back(ConstByteSpan(sum), skip == 0 ? 0 : 5);
      const ConstByteSpan one(sum);
      const ConstByteSpan one_there(sums_there.back().bytes());
      ASSERT_TRUE(here.value()->absorb(round, {&one, 1}, {}).ok());
      const Status absorbed = there.value()->absorb(round, {&one_there, 1}, kStream);
      ASSERT_TRUE(absorbed.ok()) << absorbed.message();
    }
    ASSERT_TRUE(here.value()->finish(view_of<float>(mean), {}, {}).ok());
    ASSERT_TRUE(there.value()->finish(mean_there.tensor<float>(), {}, kStream).ok());
    EXPECT_EQ(bits_of(mean_there), bits_of(mean));
    EXPECT_EQ(bits_of(next_there), bits_of(next));
  }
}

// A gradient, and sums of either round, in which a value is not finite; the coder goes on from its
// last state.
TEST(DeviceFactors, WhatIsNotFiniteIsRefused) {
  const Shape shape = Shape::matrix(40, 60);
  for (const char* spec : {"powersgd:rank=2", "powersgd:rank=1,min_rate=65536", "acpsgd:rank=2",
                           "acpsgd:rank=1,min_rate=65536"}) {
    for (const bool feedback : {false, true}) {
      SCOPED_TRACE(std::string(spec) + (feedback ? ", ef14" : ""));
      Pair pair = open_pair(spec, shape, feedback);
      const auto good = gradients(shape, 0);
      auto bad = gradients(shape, 1);
      bad[1][777] = std::numeric_limits<float>::infinity();
      for (const bool spoilt : {false, true, false}) {
        const auto here = pair.here.value().step(spoilt ? bad : good, 0);
        const auto there = pair.there.value().step(spoilt ? bad : good, 0);
        EXPECT_EQ(there.status.code(), here.status.code()) << there.status.message();
        EXPECT_EQ(there.status.ok(), !spoilt) << there.status.message();
        if (!spoilt) {
          EXPECT_EQ(there.mean, here.mean);
        }
      }
    }
  }
}

TEST(DeviceFactors, ASumOfQThatIsNotFiniteIsRefused) {
  const Shape shape = Shape::matrix(40, 60);
  const auto method = make("powersgd:rank=2");
  auto coder = method->open(shape, on_device());
  ASSERT_TRUE(coder.has_value());
  const OnDevice grad = gpu::uploaded(normals<float>(2400, 1));
  const OnDevice mean(2400 * sizeof(float));
  for (const bool spoilt : {false, true, false}) {
    ASSERT_TRUE(coder.value()->begin(grad.tensor<float>(), 0, kStream).ok());
    std::vector<OnDevice> sums;
    for (int round = 0; round < 2; ++round) {
      sums.emplace_back(method->max_payload_bytes(shape, DType::kF32, round));
      ASSERT_TRUE(coder.value()->encode(round, sums.back().bytes(), kStream).has_value());
      if (spoilt && round == 1) {
        std::vector<float> values = sums.back().values<float>();
        values[17] = std::numeric_limits<float>::quiet_NaN();
        sums.back() = gpu::uploaded(values);
      }
      const ConstByteSpan sum = sums.back().bytes();
      ASSERT_TRUE(coder.value()->absorb(round, {&sum, 1}, kStream).ok());
    }
    const Status done = coder.value()->finish(mean.tensor<float>(), {}, kStream);
    EXPECT_EQ(done.code(), spoilt ? Code::kCorruptPayload : Code::kOk) << done.message();
    if (spoilt) {
      EXPECT_THAT(done, fails(Code::kCorruptPayload, "value 17", "Q"));
    }
  }
}

TEST(DeviceFactors, OtherLengthsTurnsAndTypesAreRefused) {
  const Shape shape = Shape::matrix(40, 60);
  const auto method = make("powersgd:rank=2");
  auto coder = method->open(shape, on_device());
  ASSERT_TRUE(coder.has_value());
  const OnDevice grad = gpu::uploaded(normals<float>(2400, 1));
  const OnDevice payload(80 * sizeof(float));
  EXPECT_EQ(coder.value()->encode(0, payload.bytes(), kStream).error().code(),
            Code::kInvalidArgument);
  ASSERT_TRUE(coder.value()->begin(grad.tensor<float>(), 0, kStream).ok());
  EXPECT_EQ(coder.value()->encode(1, payload.bytes(), kStream).error().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(coder.value()->encode(0, payload.bytes().first(319), kStream).error().code(),
            Code::kInvalidArgument);
  const ConstByteSpan early = payload.bytes().first(316);
  EXPECT_EQ(coder.value()->absorb(0, {&early, 1}, kStream).code(), Code::kCorruptPayload);
  EXPECT_EQ(coder.value()->finish(grad.tensor<float>(), {}, kStream).code(),
            Code::kInvalidArgument);
  Compressor::Placement doubles = on_device();
  doubles.dtype = DType::kF64;
  EXPECT_EQ(method->open(shape, doubles).error().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace gradwire::factors_test
