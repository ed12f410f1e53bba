#include "apps/inspect/payload_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "bench/codec_bench.h"
#include "tests/support/fails.h"

namespace gradwire::payload_file_test {
namespace {

constexpr Code kCorrupt = Code::kCorruptPayload;

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}
std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
Status parse_error(const std::string& text) {
  const auto file = parse_payload_file(bytes_of(text));
  return file.has_value() ? Status() : file.error();
}

const std::string kHeader =
    "gradwire payload 1\nspec cast:type=bf16\nshape 1 2\ndtype f32\nseed 1\nstep 0\nrounds "
    "4\nend\n";

TEST(PayloadFile, KnownBytesDecodeToKnownValues) {
  // bf16: 1.5 is 0x3fc0, -2 is 0xc000, little-endian.
  const auto file = parse_payload_file(bytes_of(kHeader + std::string("\xc0\x3f\x00\xc0", 4)));
  ASSERT_TRUE(file.has_value()) << file.error().message();
  const auto values = decode_payload(Registry::builtin(), file.value());
  ASSERT_TRUE(values.has_value()) << values.error().message();
  EXPECT_THAT(values.value(), ::testing::ElementsAre(1.5, -2.0));
}

TEST(PayloadFile, EveryMethodComesBackThroughAFile) {
  const Registry registry = Registry::builtin();
  std::vector<float> gradient(600);
  for (std::size_t i = 0; i < gradient.size(); ++i)
    gradient[i] = 0.25F * static_cast<float>(i % 7) - 0.5F;
  // Of methods without defaults for all keys.
  const std::map<std::string, std::string> given{{"cast", ":fp16"},       {"topk", ":ratio=0.1"},
                                                 {"threshold", ":tau=1"}, {"randomk", ":ratio=0.1"},
                                                 {"cltk", ":ratio=0.1"},  {"qsgd", ":bits=4"}};
  ASSERT_EQ(registry.methods().size(), 24U);
  for (const Registry::Method& method : registry.methods()) {
    const auto keys = given.find(method.name);
    const std::string spec = method.name + (keys == given.end() ? "" : keys->second);
    const auto file = encode_payload(registry, spec, bench::matrix_of(600), 3, gradient);
    ASSERT_TRUE(file.has_value()) << spec << ": " << file.error().message();
    const auto again = parse_payload_file(format_payload_file(file.value()));
    ASSERT_TRUE(again.has_value()) << spec << ": " << again.error().message();
    EXPECT_EQ(again.value().rounds, file.value().rounds) << spec;
    EXPECT_EQ(again.value().shape, Shape::matrix(24, 25)) << spec;
    const auto values = decode_payload(registry, again.value());
    ASSERT_TRUE(values.has_value()) << spec << ": " << values.error().message();
    if (method.name != "none") continue;
    for (std::size_t i = 0; i < gradient.size(); ++i) ASSERT_EQ(values.value()[i], gradient[i]);
  }
}

TEST(PayloadFile, HostileFilesGiveErrors) {
  EXPECT_THAT(parse_error(""), fails(kCorrupt, "gradwire payload 1"));
  EXPECT_THAT(parse_error("gradwire payload 2\n"), fails(kCorrupt, "gradwire payload 1"));
  EXPECT_THAT(parse_error("gradwire payload 1\n"), fails(kCorrupt, "spec"));
  EXPECT_THAT(parse_error("gradwire payload 1\nspec " + std::string(10000, 'x') + "\n"),
              fails(kCorrupt, "spec"));
  EXPECT_THAT(parse_error(kHeader + "123"), fails(kCorrupt, "truncated", "3 bytes", "4"));
  EXPECT_THAT(parse_error(kHeader + "12345"), fails(kCorrupt, "1 bytes"));
  const auto with = [](const std::string& from, const std::string& to) {
    std::string text = kHeader + "1234";
    return parse_error(text.replace(text.find(from), from.size(), to));
  };
  EXPECT_TRUE(with("seed 1", "seed 2").ok());
  EXPECT_THAT(with("shape 1 2", "shape 0 2"), fails(kCorrupt, "shape", "0 2"));
  EXPECT_THAT(with("shape 1 2", "shape 1 2 3 4 5"), fails(kCorrupt, "shape", "1 2 3 4 5"));
  EXPECT_THAT(with("shape 1 2", "shape 4294967296 4294967296"),
              fails(kCorrupt, "elements", std::to_string(kMaxPayloadElems)));
  EXPECT_THAT(with("dtype f32", "dtype i8"), fails(kCorrupt, "dtype", "i8", "f32", "f64"));
  EXPECT_THAT(with("rounds 4", "rounds -4"), fails(kCorrupt, "rounds", "-4"));
  EXPECT_THAT(with("rounds 4", "rounds 99999999999999999999"),
              fails(kCorrupt, "rounds", "99999999999999999999"));
  EXPECT_THAT(with("end", "fin"), fails(kCorrupt, "end", "fin"));
}

TEST(PayloadFile, ContentsThatContradictTheHeaderAreErrors) {
  const Registry registry = Registry::builtin();
  const auto decode_error = [&](PayloadFile file) {
    const auto values = decode_payload(registry, file);
    return values.has_value() ? Code::kOk : values.error().code();
  };
  PayloadFile file{"cast:bf16", Shape::matrix(1, 2), DType::kF32, 1, 0, {bytes_of("123")}};
  EXPECT_EQ(decode_error(file), Code::kCorruptPayload);  // a byte short
  file.rounds = {bytes_of("1234"), bytes_of("1")};
  EXPECT_EQ(decode_error(file), Code::kCorruptPayload);  // a round too many
  file.rounds = {bytes_of("1234")};
  EXPECT_EQ(decode_error(file), Code::kOk);
  file.spec = "nonesuch";
  EXPECT_EQ(decode_error(file), Code::kInvalidArgument);
}

TEST(PayloadFile, EveryCutAndEveryFlippedByteIsSurvived) {
  const Registry registry = Registry::builtin();
  std::vector<float> gradient(64, 1.0F);
  for (const std::string spec : {"none", "cast:fp16"}) {
    const auto file = encode_payload(registry, spec, Shape::matrix(8, 8), 1, gradient);
    ASSERT_TRUE(file.has_value());
    const std::string whole = text_of(format_payload_file(file.value()));
    for (std::size_t i = 0; i < whole.size(); ++i) {
      EXPECT_FALSE(parse_error(whole.substr(0, i)).ok());
      std::string flipped = whole;
      flipped[i] = static_cast<char>(flipped[i] ^ 0x55);
      const auto parsed = parse_payload_file(bytes_of(flipped));
      if (parsed.has_value()) (void)decode_payload(registry, parsed.value()).has_value();
    }
  }
}

}  // namespace
}  // namespace gradwire::payload_file_test
