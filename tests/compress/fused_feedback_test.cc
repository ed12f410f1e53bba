// Error feedback in a coder's own pass gives the bits that error feedback around it gives:
// payloads, results and residuals; and leaves the residual alone when a step does not end.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "base/elements.h"
#include "base/philox.h"
#include "compress/error_feedback/ef14.h"
#include "gradwire/registry.h"
#include "tests/support/coder_ranks.h"
#include "tests/support/fails.h"
#include "tests/support/short_run.h"

namespace gradwire::fused_feedback_test {
namespace {

using testing::CoderRanks;

// Offers no pass of its own.
class Separate final : public Coder {
 public:
  explicit Separate(std::unique_ptr<Coder> inner) : inner_(std::move(inner)) {}
  Status begin(ConstTensorView grad, std::uint64_t step, const Stream& stream) override {
    return inner_->begin(grad, step, stream);
  }
  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    return inner_->encode(round, payload, stream);
  }
  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream& stream) override {
    return inner_->absorb(round, payloads, stream);
  }
  Status finish(TensorView mean, TensorView own, const Stream& stream) override {
    return inner_->finish(mean, own, stream);
  }
  std::vector<NamedTensor> state() override { return inner_->state(); }

 private:
  std::unique_ptr<Coder> inner_;
};

template <bool kFused, int kPercent>
std::unique_ptr<Coder> feedback(std::unique_ptr<Coder> inner, const Shape& shape,
                                const Compressor::Placement& where) {
  if (!kFused) inner = std::make_unique<Separate>(std::move(inner));
  return std::move(make_ef14(std::move(inner), shape, where, kPercent / 100.0)).value();
}

template <typename T>
std::vector<T> new_gradient(std::size_t elems, std::uint64_t key) {
  const RandomStream draws(3, RandomUse::kTest, key, 0, 0, 0);
  std::vector<T> x(elems);
  for (std::size_t i = 0; i < elems; ++i) {
    const std::uint32_t kind = draws.word(3 * i) % 16;
    x[i] = static_cast<T>(draws.normal(i) * (kind == 0 ? 30 : 1));
    if (kind == 1) x[i] = T{0};
    if (kind == 2) x[i] = -T{0};
    if (kind == 3) x[i] = T{0.5};
  }
  return x;
}

// The same for every method: computed once.
template <typename T>
const std::vector<T>& gradient(std::size_t elems, std::uint64_t key) {
  static std::map<std::pair<std::size_t, std::uint64_t>, std::vector<T>> made;
  const auto [place, is_new] = made.try_emplace({elems, key});
  if (is_new) place->second = new_gradient<T>(elems, key);
  return place->second;
}

template <typename T>
std::vector<std::byte> bytes_of(std::span<const T> x) {
  const auto bytes = std::as_bytes(x);
  return {bytes.begin(), bytes.end()};
}
template <typename T>
std::vector<std::byte> residual(Coder& coder) {
  return bytes_of<T>(elements<T>(ConstTensorView(coder.state()[0].tensor)));
}

// Encodes a step that then does not take place.
template <typename T>
void abandon(const Compressor& compressor, CoderRanks<T>& ranks, std::vector<T> grad,
             const Shape& shape, std::uint64_t step) {
  const ConstTensorView view(reinterpret_cast<const std::byte*>(grad.data()), shape,
                             DTypeOf<T>::kValue);
  std::vector<std::byte> payload(compressor.max_payload_bytes(shape, DTypeOf<T>::kValue, 0, 3));
  for (int r = 0; r < 3; ++r) {
    ASSERT_TRUE(ranks.coder(r).begin(view, step, {}).ok());
    ASSERT_TRUE(ranks.coder(r).encode(0, payload, {}).has_value());
  }
}

// Residuals are compared after every step, or after the last alone: some coders leave them to be
// completed when somebody reads them.
template <typename T, int kPercent>
void compare(const char* spec, const Shape& shape, bool every_step) {
  const auto compressor = std::move(Registry::builtin().make(spec)).value();
  auto fused =
      std::move(CoderRanks<T>::open(*compressor, shape, 3, 1, 77, &feedback<true, kPercent>))
          .value();
  auto apart =
      std::move(CoderRanks<T>::open(*compressor, shape, 3, 1, 77, &feedback<false, kPercent>))
          .value();
  const auto elems = static_cast<std::size_t>(shape.elems());
  for (std::uint64_t step = 0; step < 5; ++step) {
    std::vector<std::vector<T>> grads;
    for (std::uint64_t r = 0; r < 3; ++r) grads.push_back(gradient<T>(elems, 3 * step + r));
    if (step == 2) {
      abandon<T>(*compressor, fused, grads[1], shape, step);
      abandon<T>(*compressor, apart, grads[1], shape, step);
    }
    const auto one = step == 3 ? fused.step_in_place(grads, step) : fused.step(grads, step);
    const auto two = step == 3 ? apart.step_in_place(grads, step) : apart.step(grads, step);
    ASSERT_TRUE(one.status.ok()) << one.status.message();
    ASSERT_TRUE(two.status.ok()) << two.status.message();
    EXPECT_TRUE(one.bytes == two.bytes) << "payloads of step " << step;
    for (int r = 0; r < 3; ++r) {
      const auto rank = static_cast<std::size_t>(r);
      EXPECT_TRUE(bytes_of<T>(one.mean[rank]) == bytes_of<T>(two.mean[rank])) << step;
      EXPECT_TRUE(bytes_of<T>(one.own[rank]) == bytes_of<T>(two.own[rank])) << step;
      if (!every_step && step < 4) continue;
      EXPECT_TRUE(residual<T>(fused.coder(r)) == residual<T>(apart.coder(r))) << step;
    }
  }
}

class FusedFeedback : public ::testing::TestWithParam<const char*> {};

TEST_P(FusedFeedback, GivesTheBitsOfSeparatePasses) {
  ShortRun run(3);
  for (const Shape shape :
       {Shape::vector(1), Shape::vector(700), Shape::matrix(5, 1031), Shape::matrix(40, 1024)}) {
    SCOPED_TRACE(to_string(shape));
    for (const bool every_step : {true, false}) {
      for (const auto how :
           {compare<float, 100>, compare<float, 30>, compare<double, 100>, compare<double, 30>}) {
        if (run.takes()) how(GetParam(), shape, every_step);
      }
    }
  }
}

TEST_P(FusedFeedback, AStepThatDoesNotEndLeavesTheResidual) {
  const Shape shape = Shape::matrix(4, 600);
  const auto compressor = std::move(Registry::builtin().make(GetParam())).value();
  auto ranks =
      std::move(CoderRanks<float>::open(*compressor, shape, 1, 1, 77, &feedback<true, 100>))
          .value();
  std::vector<float> g = gradient<float>(2400, 1);
  ASSERT_TRUE(ranks.step({g}, 0).status.ok());
  const auto before = residual<float>(ranks.coder(0));
  const ConstTensorView view(reinterpret_cast<const std::byte*>(g.data()), shape, DType::kF32);
  std::vector<std::byte> payload(compressor->max_payload_bytes(shape, DType::kF32, 0));
  ASSERT_TRUE(ranks.coder(0).begin(view, 1, {}).ok());  // encoded, and then skipped
  ASSERT_TRUE(ranks.coder(0).encode(0, payload, {}).has_value());
  EXPECT_TRUE(residual<float>(ranks.coder(0)) == before);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> broken(g);
    broken[1234] = bad;
    const auto out = ranks.step({broken}, 2);
    EXPECT_THAT(out.status, fails(Code::kInvalidArgument, "element 1234", "(4, 600)"));
    EXPECT_TRUE(residual<float>(ranks.coder(0)) == before);
  }
  EXPECT_TRUE(ranks.step({g}, 3).status.ok());
}

// Nobody read the residual between the step before and the one that fails.
TEST_P(FusedFeedback, AStepThatFailsLeavesTheResidualUnread) {
  const Shape shape = Shape::matrix(4, 600);
  const auto compressor = std::move(Registry::builtin().make(GetParam())).value();
  const auto open = [&] {
    return std::move(CoderRanks<float>::open(*compressor, shape, 1, 1, 77, &feedback<true, 100>))
        .value();
  };
  auto failing = open();
  auto smooth = open();
  const std::vector<float> g = gradient<float>(2400, 1);
  std::vector<float> broken(g);
  broken[77] = std::numeric_limits<float>::infinity();
  for (const std::uint64_t step : {0, 1}) {
    ASSERT_TRUE(failing.step({g}, step).status.ok());
    ASSERT_TRUE(smooth.step({g}, step).status.ok());
    EXPECT_EQ(failing.step({broken}, step + 1).status.code(), Code::kInvalidArgument);
  }
  EXPECT_TRUE(residual<float>(failing.coder(0)) == residual<float>(smooth.coder(0)));
}

INSTANTIATE_TEST_SUITE_P(
    Methods, FusedFeedback,
    ::testing::Values("signsgd", "signsgd:bucket=100", "signsgd:bucket=tensor", "qsgd:bits=8",
                      "qsgd:bits=4", "qsgd:levels=5,bucket=100", "topk:ratio=0.01", "topk:k=1",
                      "topk:ratio=0.9", "powersgd:rank=1", "powersgd:rank=4,min_rate=0",
                      "powersgd:rank=6,min_rate=0", "absmax:bits=8", "absmax:bits=4",
                      "absmax:bits=2", "absmax:bits=3,bucket=64", "absmax:bits=1",
                      "absmax:bits=4,spikes=1,bucket=8192",
                      "absmax:bits=3,rounding=stochastic,bucket=64", "minmax:bits=2",
                      "minmax:bits=8,bucket=32768", "minmax:bits=4,transform=hadamard"));

INSTANTIATE_TEST_SUITE_P(Sparse, FusedFeedback,
                         ::testing::Values("topk:ratio=0.1,index=auto", "threshold:tau=0.5",
                                           "threshold:tau=3", "cltk:ratio=0.1",
                                           "cltk:ratio=0.9,index=gaps", "randomk:ratio=0.01",
                                           "randomk:ratio=0.9", "randomk:ratio=0.3,unbiased=true"));

INSTANTIATE_TEST_SUITE_P(SharedScales, FusedFeedback,
                         ::testing::Values("terngrad", "terngrad:clip=0", "global_qsgd",
                                           "global_qsgd:bits=8,bucket=100,norm=l2",
                                           "global_qsgd:bits=2,bucket=tensor", "thc",
                                           "thc:grid=31,block=64", "thc:block=8192"));

INSTANTIATE_TEST_SUITE_P(Blocks, FusedFeedback,
                         ::testing::Values("none", "cast:bf16", "cast:fp16", "fp8",
                                           "fp8:e5m2,scale=row", "mx", "mx:e3m2", "mx:e2m1",
                                           "natural", "natural:bits=8", "onebit",
                                           "onebit:bucket=100", "onebit:bucket=tensor",
                                           "lossless"));

}  // namespace
}  // namespace gradwire::fused_feedback_test
