// Error feedback on a device: payloads, means, contributions and state of every step are the
// host's.
#include "compress/error_feedback/feedback.h"

#include <limits>

#include "tests/gpu/device_pair.h"
#include "tests/gpu/hosted_method.h"
#include "tests/support/coder_ranks.h"

namespace gradwire::feedback_test {
namespace {

using gpu::gradient;
using gpu::HostedMethod;
using testing::CoderRanks;

constexpr int kRanks = 3;

// With a pass of their own for the residual, and without.
const char* const kSpecs[] = {"qsgd:bits=8",
                              "topk:ratio=0.1",
                              "signsgd",
                              "onebit",
                              "terngrad:shared=false",
                              "terngrad",
                              "global_qsgd:bits=4",
                              "thc:block=64",
                              "natural",
                              "minmax:bits=2,bucket=64,spikes=1,transform=hadamard",
                              "cast:bf16",
                              "none",
                              "lossless",
                              "topk:k=40|qsgd:bits=4",
                              "randomk:ratio=0.2",
                              "randomk:ratio=0.5|cast:bf16",
                              "threshold:tau=0.01",
                              "cltk:ratio=0.1",
                              "cltk:k=40,index=bitmap|qsgd:bits=4",
                              "powersgd:rank=2",
                              "acpsgd:rank=1",
                              "atomo"};

// Factors are of matrices.
Shape shape_of(const std::string& spec, std::int64_t elems) {
  const bool factors =
      spec.starts_with("powersgd") || spec.starts_with("acpsgd") || spec.starts_with("atomo");
  return factors ? Shape::matrix(20, elems / 20) : Shape::vector(elems);
}

std::vector<FeedbackOptions> kinds() {
  using Kind = FeedbackKind;
  using Storage = ResidualStorage;
  return {{.kind = Kind::kEf14},
          {.kind = Kind::kEf21},
          {.kind = Kind::kEf21Sgdm, .eta = 0.3},
          {.kind = Kind::kEf14, .storage = Storage::kBf16},
          {.kind = Kind::kEf14, .storage = Storage::kInt8},
          {.kind = Kind::kLoco, .storage = Storage::kInt8, .beta = 0.8, .reset = 2},
          {.kind = Kind::kLoco, .storage = Storage::kFull, .beta = 0.5, .reset = 0}};
}

std::unique_ptr<Compressor> made(const std::string& spec) {
  auto method = Registry::builtin().make(spec);
  EXPECT_TRUE(method.has_value()) << spec << ": " << method.error().message();
  return std::move(method).value();
}

struct Pairs {
  std::unique_ptr<Compressor> method;
  std::unique_ptr<Compressor> hosted;
  Result<CoderRanks<float>> here;
  Result<CoderRanks<float>> there;
};
Pairs open_pairs(const std::string& spec, const FeedbackOptions& options, double scale,
                 const Shape& shape) {
  auto method = made(spec);
  std::unique_ptr<Compressor> hosted = std::make_unique<HostedMethod>(
      made(spec), [options, scale](std::unique_ptr<Coder> inner, const Shape& shape,
                                   const Compressor::Placement& where) {
        return make_feedback(std::move(inner), shape, where, options, scale);
      });
  const auto wrap = [options, scale](std::unique_ptr<Coder> inner, const Shape& shape,
                                     const Compressor::Placement& where) {
    return std::move(make_feedback(std::move(inner), shape, where, options, scale)).value();
  };
  auto here = CoderRanks<float>::open(*method, shape, kRanks, 1, 77, wrap);
  auto there = CoderRanks<float>::open(*hosted, shape, kRanks);
  return {std::move(method), std::move(hosted), std::move(here), std::move(there)};
}

std::vector<std::vector<float>> gradients(std::size_t elems, std::uint64_t step) {
  std::vector<std::vector<float>> all;
  for (std::uint64_t r = 0; r < kRanks; ++r) all.push_back(gradient(elems, 10 * step + r));
  return all;
}

void expect_same_state(Coder& here, Coder& there) {
  const auto kept = here.state();
  const auto kept_there = there.state();
  ASSERT_EQ(kept_there.size(), kept.size());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(kept_there[i].name, kept[i].name);
    EXPECT_EQ(kept_there[i].tensor.dtype(), kept[i].tensor.dtype());
    EXPECT_TRUE(std::ranges::equal(kept_there[i].tensor.bytes(), kept[i].tensor.bytes()))
        << kept[i].name;
  }
}

TEST(DeviceFeedback, KeepsWhatTheHostKeeps) {
  for (const std::string spec : kSpecs) {
    for (const FeedbackOptions& options : kinds()) {
      for (const double scale : {1.0, 0.375}) {
        SCOPED_TRACE(spec + ", " + std::string(to_string(options.kind)) + " by " +
                     std::to_string(scale));
        const Shape shape = shape_of(spec, scale == 1.0 ? 1000 : 257);
        const auto elems = static_cast<std::size_t>(shape.elems());
        Pairs pairs = open_pairs(spec, options, scale, shape);
        ASSERT_TRUE(pairs.here.has_value());
        ASSERT_TRUE(pairs.there.has_value()) << pairs.there.error().message();
        for (std::uint64_t step = 0; step < 4; ++step) {
          const auto grads = gradients(elems, step);
          const auto here = pairs.here.value().step(grads, step);
          const auto there = pairs.there.value().step(grads, step);
          ASSERT_TRUE(here.status.ok()) << here.status.message();
          ASSERT_TRUE(there.status.ok()) << there.status.message();
          EXPECT_EQ(there.bytes, here.bytes) << "step " << step;
          EXPECT_EQ(there.mean, here.mean) << "step " << step;
          EXPECT_EQ(there.own, here.own) << "step " << step;
        }
        for (int r = 0; r < kRanks; ++r) {
          expect_same_state(pairs.here.value().coder(r), pairs.there.value().coder(r));
        }
      }
    }
  }
}

// A step that fails leaves the state, and the next goes on from it.
TEST(DeviceFeedback, ANaNIsRefusedAndForgotten) {
  for (const std::string spec : {"qsgd:bits=8", "topk:k=40|qsgd:bits=4", "powersgd:rank=2"}) {
    for (const FeedbackOptions& options : kinds()) {
      SCOPED_TRACE(spec + ", " + std::string(to_string(options.kind)));
      Pairs pairs = open_pairs(spec, options, 1, shape_of(spec, 300));
      const auto good = gradients(300, 1);
      ASSERT_TRUE(pairs.here.value().step(good, 0).status.ok());
      ASSERT_TRUE(pairs.there.value().step(good, 0).status.ok());
      auto bad = gradients(300, 2);
      bad[0][123] = std::numeric_limits<float>::quiet_NaN();
      const auto refused = pairs.there.value().step(bad, 1);
      EXPECT_EQ(refused.status.code(), Code::kInvalidArgument) << refused.status.message();
      const auto here = pairs.here.value().step(good, 2);
      const auto there = pairs.there.value().step(good, 2);
      ASSERT_TRUE(there.status.ok()) << there.status.message();
      EXPECT_EQ(there.bytes, here.bytes);
      EXPECT_EQ(there.mean, here.mean);
      expect_same_state(pairs.here.value().coder(0), pairs.there.value().coder(0));
    }
  }
}

TEST(DeviceFeedback, CallsOutOfOrderAndOtherPlacesAreRefused) {
  const auto method = made("qsgd:bits=8");
  const Shape shape = Shape::vector(16);
  for (const FeedbackOptions& options : kinds()) {
    auto opened = method->open(shape, gpu::on_device());
    auto coder = make_feedback(std::move(opened).value(), shape, gpu::on_device(), options, 1);
    ASSERT_TRUE(coder.has_value()) << coder.error().message();
    const gpu::OnDevice there(64);
    EXPECT_EQ(coder.value()->encode(0, there.bytes(), gpu::kStream).error().code(),
              Code::kInvalidArgument);
    std::vector<float> here(16);
    EXPECT_EQ(coder.value()->begin(const_view_of<float>(here), 0, gpu::kStream).code(),
              Code::kInvalidArgument);
    EXPECT_EQ(make_feedback(nullptr, shape, gpu::on_device(), options, 1).error().code(),
              Code::kInvalidArgument);
    EXPECT_EQ(
        make_feedback(std::move(coder).value(), shape, gpu::on_device(), options, 2).error().code(),
        Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace gradwire::feedback_test
