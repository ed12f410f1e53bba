// The inner loops of terngrad, global_qsgd and thc. simd::, for fp32, takes the best instruction
// set of the machine and gives the bits that plain:: gives.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/little_endian.h"
#include "compress/shared_scale/level_arithmetic.h"
#include "compress/value_range.h"

namespace gradwire {

// Where the lanes of some words go: element e of as many words as there are vector lanes is in
// word[e] of them, shift[e] bits up.
struct LanePattern {
  static constexpr std::size_t kWords = 16;
  LanePattern(std::size_t lanes, int width);
  std::size_t lanes;
  int width;
  std::uint32_t mask;
  std::array<std::uint32_t, kWords * 32> word;
  std::array<std::uint32_t, kWords * 32> shift;
};

// What lanes hold that should not be there.
struct LaneFaults {
  std::uint32_t largest = 0;  // lane
  std::uint32_t free = 0;     // bits beyond the last lane of a word
};

namespace cpu {
namespace plain {

// codes[i] = level_code() of x[i]; draws: two bytes an element.
template <typename T>
void code_levels(const LevelPlace<T>& place, std::span<const T> x, const std::byte* draws,
                 std::uint8_t* codes) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    codes[i] = level_code(place, x[i], load_le<std::uint16_t>(draws, i));
  }
}

// codes[i] = cell_code() of x[i].
template <typename T>
void code_cells(const CellPlace<T>& place, const CellTable& table, std::span<const T> x,
                const std::byte* draws, std::uint8_t* codes) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    codes[i] = cell_code(place, table, x[i], load_le<std::uint16_t>(draws, i));
  }
}

// out[i] = value_of_sum() of sums[i].
template <typename T, typename Sum>
void values_of(const Sum* sums, std::int64_t zero, T factor, std::span<T> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = value_of_sum<T>(static_cast<std::int64_t>(sums[i]), zero, factor);
  }
}

// words[w] = codes[w lanes + j] << (j width), j = 0 ... lanes - 1, of as many words as are whole.
void pack_lanes(std::size_t lanes, int width, std::span<const std::uint8_t> codes,
                std::byte* words);
void unpack_lanes(const LanePattern& pattern, const std::byte* words, std::size_t count,
                  std::uint32_t* sums, LaneFaults& faults);

}  // namespace plain

namespace simd {

void code_levels(const LevelPlace<float>& place, std::span<const float> x, const std::byte* draws,
                 std::uint8_t* codes);
void code_cells(const CellPlace<float>& place, const CellTable& table, std::span<const float> x,
                const std::byte* draws, std::uint8_t* codes);
void values_of(const std::uint8_t* sums, std::int64_t zero, float factor, std::span<float> out);
void values_of(const std::uint32_t* sums, std::int64_t zero, float factor, std::span<float> out);
void pack_lanes(std::size_t lanes, int width, std::span<const std::uint8_t> codes,
                std::byte* words);
// sums[0, count * lanes) = the lanes of `count` words, in order.
void unpack_lanes(const LanePattern& pattern, const std::byte* words, std::size_t count,
                  std::uint32_t* sums, LaneFaults& faults);

}  // namespace simd

// The loops for an element type.
template <typename T>
void code_levels(const LevelPlace<T>& place, std::span<const T> x, const std::byte* draws,
                 std::uint8_t* codes) {
  plain::code_levels(place, x, draws, codes);
}
template <>
inline void code_levels<float>(const LevelPlace<float>& place, std::span<const float> x,
                               const std::byte* draws, std::uint8_t* codes) {
  simd::code_levels(place, x, draws, codes);
}
template <typename T>
void code_cells(const CellPlace<T>& place, const CellTable& table, std::span<const T> x,
                const std::byte* draws, std::uint8_t* codes) {
  plain::code_cells(place, table, x, draws, codes);
}
template <>
inline void code_cells<float>(const CellPlace<float>& place, const CellTable& table,
                              std::span<const float> x, const std::byte* draws,
                              std::uint8_t* codes) {
  simd::code_cells(place, table, x, draws, codes);
}
template <typename T, typename Sum>
void values_of(const Sum* sums, std::int64_t zero, T factor, std::span<T> out) {
  if constexpr (sizeof(T) == 4) {
    simd::values_of(sums, zero, factor, out);
  } else {
    plain::values_of(sums, zero, factor, out);
  }
}

}  // namespace cpu
}  // namespace gradwire
