// The fuzzers' target on inputs made here: sound payloads, truncated ones, flipped bits, noise. So
// every build runs what the fuzzers run.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <ostream>
#include <string>
#include <vector>

#include "base/elements.h"
#include "base/philox.h"
#include "gradwire/registry.h"
#include "tests/fuzz/corpus.h"
#include "tests/fuzz/decoder_target.h"

namespace gradwire::fuzz {
namespace {

using Payload = std::vector<std::byte>;

// A line of decoders.txt.
struct Target {
  std::string name;
  std::string spec;
};
void PrintTo(const Target& target, std::ostream* out) { *out << target.spec; }

class DecoderReplay : public ::testing::TestWithParam<Target> {};

// A payload of `round` as another rank would send it, behind the target's header.
Payload sound_input(const Compressor& compressor, std::uint8_t shape_choice, bool doubles,
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
  Payload payload;
  for (int now = 0; now <= round; ++now) {
    payload.resize(compressor.max_payload_bytes(shape, dtype, now));
    payload.resize(coder.value()->encode(now, payload, {}).value());
    const std::vector<ConstByteSpan> all{payload};
    if (now == round) break;
    EXPECT_TRUE(coder.value()->absorb(now, all, {}).ok());
  }
  Payload input{std::byte{shape_choice}, static_cast<std::byte>(doubles ? 1 : 0),
                static_cast<std::byte>(round)};
  input.insert(input.end(), payload.begin(), payload.end());
  return input;
}

TEST_P(DecoderReplay, NoInputBreaksTheDecoder) {
  const auto made = Registry::builtin().make(std::string_view(GetParam().spec));
  ASSERT_TRUE(made.has_value());
  for (std::uint8_t choice = 0; choice < kShapes; ++choice) {
    for (int round = 0; round < made.value()->traits().rounds; ++round) {
      for (const bool doubles : {false, true}) {
        const Payload sound = sound_input(*made.value(), choice, doubles, round);
        feed_decoder(*made.value(), sound);
        for (const std::size_t cut : {sound.size() - 1, sound.size() / 2, kHeaderBytes}) {
          feed_decoder(*made.value(), ConstByteSpan(sound).first(std::max(cut, kHeaderBytes)));
        }
        const std::size_t stride = sound.size() > 200 ? 7 : 1;
        for (std::size_t bit = 8 * kHeaderBytes; bit < 8 * sound.size(); bit += stride) {
          Payload flipped = sound;
          flipped[bit / 8] ^= std::byte{1} << (bit % 8);
          feed_decoder(*made.value(), flipped);
        }
        const RandomStream noise(7, RandomUse::kTest, choice, 0, 0, 0);
        for (std::uint64_t trial = 0; trial < 64; ++trial) {
          Payload random = sound;
          for (std::size_t i = kHeaderBytes; i < random.size(); ++i) {
            random[i] = static_cast<std::byte>(noise.word(trial * 65536 + i));
          }
          random[1] |= static_cast<std::byte>(2 * (trial % 4));  // fitted or not, either stage
          feed_decoder(*made.value(), random);
        }
      }
    }
  }
}

TEST_P(DecoderReplay, NothingThatWasFoundBreaksItAgain) {
  const auto made = Registry::builtin().make(std::string_view(GetParam().spec));
  ASSERT_TRUE(made.has_value());
  for (const auto& input :
       read_corpus(GW_FUZZ_FOLDER "/corpus/decoder_" + GetParam().name + ".hex")) {
    feed_decoder(*made.value(), std::as_bytes(std::span(input)));
  }
}

std::vector<Target> targets() {
  std::vector<Target> all;
  std::ifstream file(GW_FUZZ_FOLDER "/decoders.txt");
  for (Target one; file >> one.name >> one.spec;) all.push_back(one);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Decoders, DecoderReplay, ::testing::ValuesIn(targets()),
                         [](const auto& info) { return info.param.name; });

TEST(DecoderTargets, AreThereForEveryRegisteredMethod) {
  const Registry registry = Registry::builtin();
  const std::vector<Target> all = targets();
  for (const Registry::Method& method : registry.methods()) {
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const Target& target) {
      return target.spec.substr(0, target.spec.find_first_of(":|")) == method.name;
    })) << method.name;
  }
}

}  // namespace
}  // namespace gradwire::fuzz
