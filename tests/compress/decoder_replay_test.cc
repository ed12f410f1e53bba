// The fuzzers' target on inputs made here: sound payloads, truncated ones, flipped bits, noise. So
// every build runs what the fuzzers run.
#include <gtest/gtest.h>

#include <vector>

#include "base/elements.h"
#include "base/philox.h"
#include "tests/fuzz/decoder_target.h"

namespace gradwire::fuzz {
namespace {

using Bytes = std::vector<std::byte>;

class DecoderReplay : public ::testing::TestWithParam<const char*> {};

// A payload of `round` as another rank would send it, behind the target's header.
Bytes sound_input(const Compressor& compressor, std::uint8_t shape_choice, bool doubles,
                  int round) {
  const Shape shape = shape_of(shape_choice);
  const DType dtype = doubles ? DType::kF64 : DType::kF32;
  const Compressor::Placement where{.dtype = dtype, .rank = 0, .size = 1, .seed = 1, .tensor = 2};
  auto coder = compressor.open(shape, where);
  const auto elems = static_cast<std::size_t>(shape.elems());
  std::vector<double> wide(elems);
  std::vector<float> narrow(elems);
  const RandomStream stream(1, RandomUse::kTest, 0, 0, 0, 0);
  for (std::size_t i = 0; i < elems; ++i) {
    wide[i] = stream.normal(i);
    narrow[i] = static_cast<float>(wide[i]);
  }
  const std::byte* data = doubles ? reinterpret_cast<const std::byte*>(wide.data())
                                  : reinterpret_cast<const std::byte*>(narrow.data());
  EXPECT_TRUE(coder.value()->begin({data, shape, dtype}, 3, {}).ok());
  Bytes payload;
  for (int now = 0; now <= round; ++now) {
    payload.resize(compressor.max_payload_bytes(shape, dtype, now));
    payload.resize(coder.value()->encode(now, payload, {}).value());
    const std::vector<ConstByteSpan> all{payload};
    if (now == round) break;
    EXPECT_TRUE(coder.value()->absorb(now, all, {}).ok());
  }
  Bytes input{std::byte{shape_choice}, static_cast<std::byte>(doubles ? 1 : 0),
              static_cast<std::byte>(round)};
  input.insert(input.end(), payload.begin(), payload.end());
  return input;
}

TEST_P(DecoderReplay, NoInputBreaksTheDecoder) {
  const auto made = Registry::builtin().make(std::string_view(GetParam()));
  ASSERT_TRUE(made.has_value());
  for (std::uint8_t choice = 0; choice < kShapes; ++choice) {
    for (int round = 0; round < made.value()->traits().rounds; ++round) {
      for (const bool doubles : {false, true}) {
        const Bytes sound = sound_input(*made.value(), choice, doubles, round);
        feed_decoder(GetParam(), sound);
        for (const std::size_t cut : {sound.size() - 1, sound.size() / 2, kHeaderBytes}) {
          feed_decoder(GetParam(), ConstByteSpan(sound).first(std::max(cut, kHeaderBytes)));
        }
        const std::size_t stride = sound.size() > 200 ? 7 : 1;
        for (std::size_t bit = 8 * kHeaderBytes; bit < 8 * sound.size(); bit += stride) {
          Bytes flipped = sound;
          flipped[bit / 8] ^= std::byte{1} << (bit % 8);
          feed_decoder(GetParam(), flipped);
        }
        const RandomStream noise(7, RandomUse::kTest, choice, 0, 0, 0);
        for (std::uint64_t trial = 0; trial < 64; ++trial) {
          Bytes random = sound;
          for (std::size_t i = kHeaderBytes; i < random.size(); ++i) {
            random[i] = static_cast<std::byte>(noise.word(trial * 65536 + i));
          }
          random[1] |= static_cast<std::byte>(2 * (trial % 4));  // fitted or not, either stage
          feed_decoder(GetParam(), random);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Decoders, DecoderReplay,
    ::testing::Values("none", "cast:fp16", "cast:bf16", "topk:ratio=0.1",
                      "topk:ratio=0.3,index=bitmap", "topk:ratio=0.1,index=gaps",
                      "topk:ratio=0.1,index=auto|qsgd:bits=4,bucket=16", "threshold:tau=0.5",
                      "threshold:tau=0.5,index=auto|qsgd:bits=4,bucket=16", "dgc:ratio=0.1",
                      "dgc:ratio=0.1,index=gaps|cast:bf16", "block_sparse:block=4",
                      "block_sparse:block=4,index=auto|qsgd:bits=4,bucket=16", "cltk:ratio=0.1",
                      "cltk:ratio=0.3,index=auto|qsgd:bits=4,bucket=16", "randomk:ratio=0.3",
                      "randomk:ratio=0.3|qsgd:bits=4,bucket=16", "qsgd:bits=4,bucket=16",
                      "qsgd:levels=5,norm=l2", "minmax:bits=3,bucket=16",
                      "minmax:bits=2,bucket=16,spikes=1",
                      "absmax:bits=4,bucket=16,transform=hadamard", "terngrad",
                      "terngrad:shared=false", "global_qsgd:bits=4,bucket=16", "thc:block=16",
                      "signsgd:bucket=16", "signsgd:vote=majority", "signsgd:vote=majority,zeros=1",
                      "lossless", "fp8:e4m3,block=16", "fp8:e5m2,scale=row", "mx:e4m3", "mx:e5m2",
                      "mx:e3m2", "mx:e2m1", "natural", "natural:bits=8", "onebit:bucket=16",
                      "signum", "powersgd:rank=2", "acpsgd:rank=2", "atomo:budget=2"));

}  // namespace
}  // namespace gradwire::fuzz
