// What a codec costs when it is written down without further thought: plain loops, compiled as
// everything else (-O3 for this machine), and the standard library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gradwire::bench::peers {

// The k largest magnitudes: a copy of them, std::nth_element, and a pass for the places of those
// that are no smaller than the k-th, which is returned.
float nth_element(std::span<const float> x, std::size_t k, std::vector<float>& scratch,
                  std::vector<std::uint32_t>& index);
// The same by std::nth_element over pairs, which come with their places.
struct Pair {
  float magnitude;
  std::uint32_t place;
};
void nth_pair(std::span<const float> x, std::size_t k, std::vector<Pair>& pairs);
// Error feedback and a threshold in three loops: e += g; those at or above it out; zeros there.
std::size_t feedback_threshold(std::span<const float> g, float threshold, std::span<float> e,
                               std::span<std::uint32_t> index, std::span<float> value);

// One scale per bucket, 8 bits (levels -127 ... 127) or 4 (-7 ... 7, two to a byte).
inline constexpr std::size_t kBucket = 512;
void int8_nearest(std::span<const float> x, std::span<float> scales, std::span<std::int8_t> codes);
void int8_stochastic(std::span<const float> x, std::span<float> scales,
                     std::span<std::int8_t> codes);
void int8_decode(std::span<const float> scales, std::span<const std::int8_t> codes,
                 std::span<float> x);
void int4_nearest(std::span<const float> x, std::span<float> scales, std::span<std::uint8_t> codes);
void int4_decode(std::span<const float> scales, std::span<const std::uint8_t> codes,
                 std::span<float> x);
// Decoded, added to `x`, and encoded again, in three loops.
void int8_reduce(std::span<float> scales, std::span<std::int8_t> codes, std::span<const float> x,
                 std::span<float> sum);

float sign_pack(std::span<const float> x, std::span<std::uint8_t> bits);  // the mean of |x|
void sign_unpack(std::span<const std::uint8_t> bits, float scale, std::span<float> x);

void to_bf16(std::span<const float> x, std::span<std::uint16_t> half);

// Modified Gram-Schmidt over the `count` rows, in fp32.
void gram_schmidt(std::span<float> rows, std::size_t count);

}  // namespace gradwire::bench::peers
