// Payloads and results do not depend on the instruction set: every one that this processor has
// gives the bytes that plain loops give, alone and under error feedback.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>

#include "base/philox.h"
#include "compress/error_feedback/ef14.h"
#include "compress/error_feedback/legality.h"
#include "gradwire/registry.h"
#include "tests/support/coder_ranks.h"
#include "tests/support/simd_targets.h"

namespace gradwire {
namespace {

using testing::CoderRanks;

using Bytes = std::vector<std::byte>;

void append(Bytes& all, const void* data, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  all.insert(all.end(), from, from + bytes);
}

// Gaussian values, zeros, equal magnitudes, subnormal and `large` numbers.
std::vector<float> gradient(std::size_t elems, std::uint64_t key, float large) {
  const RandomStream draws(7, RandomUse::kTest, key, 0, 0, 0);
  std::vector<float> x(elems);
  for (std::size_t i = 0; i < elems; ++i) {
    x[i] = static_cast<float>(draws.normal(i));
    const std::uint32_t kind = draws.word(3 * i + 1) % 64;
    if (kind == 0) x[i] = 0.0f;
    if (kind == 1) x[i] = -0.0f;
    if (kind == 2) x[i] = x[i] < 0 ? -1.5f : 1.5f;
    if (kind == 3) x[i] *= 0x1p-130f;
    if (kind == 4 && i / 4096 % 2 == 1) x[i] *= large;
  }
  return x;
}

std::unique_ptr<Coder> feedback(std::unique_ptr<Coder> inner, const Shape& shape,
                                const Compressor::Placement& where) {
  return std::move(make_ef14(std::move(inner), shape, where)).value();
}

// Everything that two ranks send and hold in two steps.
Bytes trace(const Compressor& compressor, const Shape& shape, bool with_feedback) {
  // Within what fp16 holds, and what products of three such numbers leave finite.
  const std::string spec = compressor.spec();
  float large = 0x1p95f;
  if (spec.starts_with("powersgd")) large = 0x1p20f;
  if (spec == "cast:type=fp16") large = 0x1p10f;
  auto opened = CoderRanks<float>::open(compressor, shape, 2, 1, 77,
                                        with_feedback ? feedback : CoderRanks<float>::Wrap());
  EXPECT_TRUE(opened.has_value()) << opened.error().message();
  CoderRanks<float> ranks = std::move(opened).value();
  Bytes all;
  for (std::uint64_t step = 0; step < 2; ++step) {
    const auto elems = static_cast<std::size_t>(shape.elems());
    const auto out =
        ranks.step({gradient(elems, 2 * step, large), gradient(elems, 2 * step + 1, large)}, step);
    EXPECT_TRUE(out.status.ok()) << out.status.message();
    for (const auto& round : out.bytes) {
      for (const auto& payload : round) append(all, payload.data(), payload.size());
    }
    for (const auto& mean : out.mean) append(all, mean.data(), mean.size() * sizeof(float));
    for (const auto& own : out.own) append(all, own.data(), own.size() * sizeof(float));
  }
  for (const NamedTensor& part : ranks.coder(0).state()) {
    append(all, part.tensor.data(), static_cast<std::size_t>(part.tensor.elems()) * sizeof(float));
  }
  return all;
}

class SimdTargets : public ::testing::TestWithParam<const char*> {};

TEST_P(SimdTargets, AllGiveTheBytesOfPlainLoops) {
  const auto compressor = std::move(Registry::builtin().make(GetParam())).value();
  const bool may_feed_back =
      check_pair(*compressor, Shape::matrix(3, 5), {.error_feedback = true}).has_value();
  for (const std::int64_t elems : {1, 15, 16, 17, 63, 511, 4096, 4099, 20011}) {
    for (const bool with_feedback : {false, true}) {
      if (with_feedback && !may_feed_back) continue;
      for (const Shape shape : {Shape::vector(elems), Shape::matrix(3, elems)}) {
        std::map<std::string, Bytes> traces;
        testing::for_each_simd_target([&](const std::string& target) {
          traces[target] = trace(*compressor, shape, with_feedback);
        });
        ASSERT_TRUE(traces.contains("SCALAR"));
        for (const auto& [target, bytes] : traces) {
          EXPECT_TRUE(bytes == traces["SCALAR"])
              << target << ", " << elems << " columns" << (with_feedback ? ", ef14" : "");
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Methods, SimdTargets,
    ::testing::Values("signsgd", "signsgd:bucket=24", "signsgd:bucket=100", "signsgd:bucket=tensor",
                      "signsgd:vote=majority", "cast:bf16", "cast:fp16", "qsgd:bits=8",
                      "qsgd:bits=4", "qsgd:bits=2", "qsgd:levels=5,bucket=100",
                      "qsgd:bits=8,norm=l2", "topk:ratio=0.01", "topk:k=7", "powersgd:rank=1",
                      "powersgd:rank=4,min_rate=0", "powersgd:rank=6,min_rate=0", "absmax:bits=8",
                      "absmax:bits=4", "absmax:bits=1", "absmax:bits=3,rounding=stochastic",
                      "absmax:bits=4,spikes=1", "minmax:bits=8", "minmax:bits=2",
                      "minmax:bits=8,rounding=stochastic",
                      "minmax:bits=4,transform=hadamard,bucket=64", "fp8",
                      "absmax:bits=8,bucket=24", "qsgd:bits=8,bucket=24", "fp8:e5m2", "mx",
                      "mx:e5m2", "mx:e3m2", "mx:e2m1", "natural", "natural:bits=8", "onebit",
                      "lossless", "onebit:bucket=100", "global_qsgd", "global_qsgd:norm=l2", "thc",
                      "thc:grid=31", "terngrad", "terngrad:shared=false"));

INSTANTIATE_TEST_SUITE_P(Sparse, SimdTargets,
                         ::testing::Values("topk:k=7,index=gaps", "threshold:tau=2",
                                           "dgc:ratio=0.01", "dgc:ratio=0.02,nesterov=true,clip=9",
                                           "block_sparse", "block_sparse:block=100",
                                           "cltk:ratio=0.01", "randomk:ratio=0.05",
                                           "randomk:k=7,unbiased=true"));

}  // namespace
}  // namespace gradwire
