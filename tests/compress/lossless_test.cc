#include <bit>
#include <cstring>

#include "base/small_floats.h"
#include "compress/lossless/lossless_kernels.h"
#include "tests/compress/small_codes.h"
#include "tests/reference/lossless_reference.h"

namespace gradwire::lossless_test {
namespace {

using namespace testing;

template <typename T>
std::vector<std::byte> encoded(const std::vector<T>& x) {
  std::vector<std::byte> wire(lossless_most_bytes(x.size(), sizeof(T)) + 1);
  const std::size_t count = cpu::lossless_encode<T>(x, ByteSpan(wire).subspan(1));  // not aligned
  wire.erase(wire.begin());
  wire.resize(count);
  return wire;
}

template <typename T>
void expect_exact(const std::vector<T>& x) {
  const auto wire = encoded(x);
  const auto wanted = LosslessReference<T>::encode(x);
  ASSERT_EQ(wire.size(), wanted.size());
  ASSERT_EQ(std::memcmp(wire.data(), wanted.data(), wire.size()), 0);
  std::vector<T> y(x.size(), T{7});
  const Status status = cpu::lossless_decode<T>(wire, false, y);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(std::memcmp(x.data(), y.data(), x.size() * sizeof(T)), 0);
}

template <typename T>
std::vector<T> any_bits(std::size_t count) {
  const RandomStream noise(3, RandomUse::kTest, 0, 0, 0, 0);
  std::vector<T> x(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = std::uint64_t{noise.word(2 * i)} << 32 | noise.word(2 * i + 1);
    std::memcpy(&x[i], &bits, sizeof(T));
  }
  return x;
}

template <typename T>
void expect_exact_everywhere() {
  for (const std::size_t count : {1u, 2u, 7u, 65u, 511u, 512u, 513u, 1500u}) {
    expect_exact(mixed_values<T>(count));
    expect_exact(any_bits<T>(count));  // NaNs of every payload among them
    expect_exact(std::vector<T>(count, T{0}));
    expect_exact(std::vector<T>(count, T{-0.75}));
    auto rounded = mixed_values<T>(count);
    for (T& v : rounded) {
      v = static_cast<T>(float_from_bf16(bf16_from_float(static_cast<float>(v))));
    }
    expect_exact(rounded);
  }
}
TEST(Lossless, BitsSurviveForFloats) { expect_exact_everywhere<float>(); }
TEST(Lossless, BitsSurviveForDoubles) { expect_exact_everywhere<double>(); }

template <typename T>
double bits_per_element(const std::vector<T>& x) {
  return 8.0 * static_cast<double>(encoded(x).size()) / static_cast<double>(x.size());
}

// A normal distribution: about 3.3 bits of exponent instead of 8.
TEST(Lossless, GradientsShrink) {
  std::vector<float> x(65536);
  const RandomStream data(2, RandomUse::kTest, 0, 0, 0, 0);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(0.01 * data.normal(i));
  EXPECT_LT(bits_per_element(x), 27.5);
  std::vector<float> half = x;
  for (float& v : half) v = float_from_bf16(bf16_from_float(v));
  EXPECT_LT(bits_per_element(half), 11.6);  // of 16
  std::vector<double> wide(x.begin(), x.end());
  EXPECT_LT(bits_per_element(wide), 32.7);  // fp32 numbers in fp64: 3 of 8 bytes and exponents
  EXPECT_LT(bits_per_element(std::vector<float>(65536)), 0.07);
}

TEST(Lossless, NeverLongerThanItsBound) {
  EXPECT_EQ(encoded(any_bits<float>(5120)).size(), 5120u * 4 + 10);
  EXPECT_EQ(encoded(any_bits<double>(5120)).size(), 5120u * 8 + 10);
  EXPECT_EQ(make("lossless")->max_payload_bytes(Shape::vector(5121), DType::kF32, 0),
            5121u * 4 + 11);
}

TEST(Lossless, MeanOverRanksIsTheSumOfTheGradients) {
  const auto compressor = make("lossless");
  auto ranks = CoderRanks<float>::open(*compressor, Shape::vector(1000), 3);
  std::vector<std::vector<float>> grads(3, std::vector<float>(1000));
  for (std::size_t r = 0; r < 3; ++r) {
    const RandomStream data(r, RandomUse::kTest, 0, 0, 0, 0);
    for (std::size_t i = 0; i < 1000; ++i) grads[r][i] = static_cast<float>(data.normal(i));
  }
  const auto outcome = ranks.value().step(grads, 0);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  for (std::size_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(outcome.mean[0][i], (grads[0][i] + grads[1][i] + grads[2][i]) * (1.0f / 3)) << i;
  }
  EXPECT_EQ(outcome.own, grads);
}

TEST(Lossless, RefusesImpossiblePayloads) {
  const auto check = [](std::vector<unsigned> bytes, std::size_t count) {
    std::vector<std::byte> wire;
    for (const unsigned byte : bytes) wire.push_back(static_cast<std::byte>(byte));
    std::vector<float> x(count);
    return cpu::lossless_decode<float>(wire, true, x).code();
  };
  EXPECT_EQ(check({0x30, 127, 0, 0}, 2), Code::kOk);                    // two ones
  EXPECT_EQ(check({0x30, 127, 0, 0, 0}, 2), Code::kCorruptPayload);     // a byte too many
  EXPECT_EQ(check({0x30, 127, 0}, 2), Code::kCorruptPayload);           // one too few
  EXPECT_EQ(check({0x30, 127, 1, 0}, 2), Code::kCorruptPayload);        // an exception of no code
  EXPECT_EQ(check({0x40, 127, 0, 0}, 2), Code::kCorruptPayload);        // four bytes left out
  EXPECT_EQ(check({0x39, 127, 0, 0}, 2), Code::kCorruptPayload);        // codes of 9 bits
  EXPECT_EQ(check({0x32, 127, 0, 0, 0x04}, 2), Code::kOk);              // codes 0 and 1
  EXPECT_EQ(check({0x32, 0, 0, 0, 0x04}, 2), Code::kCorruptPayload);    // an exponent of -1
  EXPECT_EQ(check({0x32, 127, 0, 0, 0x14}, 2), Code::kCorruptPayload);  // a free bit
  EXPECT_EQ(check({0x32, 127, 0, 0, 0x0c}, 2), Code::kCorruptPayload);  // no exception
  EXPECT_EQ(check({0x32, 127, 1, 0, 0x0c, 9}, 2), Code::kOk);           // one
  EXPECT_EQ(check({0xff, 0, 0, 0x80, 0x3f}, 1), Code::kOk);
  EXPECT_EQ(check({0xff, 0, 0, 0x80}, 1), Code::kCorruptPayload);
  expect_refused({"lossless:bits=3", "lossless:1"});
}

}  // namespace
}  // namespace gradwire::lossless_test
