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
#include "compress/value_range.h"

namespace gradwire {

// What makes levels of magnitudes: min(min(|x|, clip) * before * by, most).
template <typename T>
struct LevelPlace {
  T clip;
  T before;
  T by;
  T most;
};

// What makes places on a table's grid of elements: x * before * by + half, cut to [0, grid].
template <typename T>
struct CellPlace {
  T before;
  T by;
  T half;
  T grid;
};

// A table of numbers on a grid of at most 31 cells: by cell the number below it, and one over the
// gap to the next.
struct CellTable {
  std::array<float, 32> below{};
  std::array<float, 32> gap{};
  bool uniform = false;  // below[i] = i, gap[i] = 1
};

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

// codes[i] = s + sign(x) (floor(a) + [u < a - floor(a)]) with u = (h + 1/2) / 2^16, h the draw: two
// bytes an element.
template <typename T>
void code_levels(const LevelPlace<T>& place, std::span<const T> x, const std::byte* draws,
                 std::uint8_t* codes) {
  const auto s = static_cast<int>(place.most);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const T magnitude = std::min(std::abs(x[i]), place.clip);
    const T a = std::min(magnitude * place.before * place.by, place.most);
    const int whole = static_cast<int>(a);
    const T u = (static_cast<T>(load_le<std::uint16_t>(draws, i)) + T{0.5}) * T{0x1p-16};
    const int level = whole + (u < a - static_cast<T>(whole) ? 1 : 0);
    codes[i] = static_cast<std::uint8_t>(s + (x[i] < 0 ? -level : level));
  }
}

// codes[i] = the number below x's place, or the one above: drawn.
template <typename T>
void code_cells(const CellPlace<T>& place, const CellTable& table, std::span<const T> x,
                const std::byte* draws, std::uint8_t* codes) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const T at = std::clamp(x[i] * place.before * place.by + place.half, T{0}, place.grid);
    const auto cell =
        static_cast<std::size_t>(std::min(static_cast<T>(std::trunc(at)), place.grid - 1));
    const auto low = static_cast<T>(table.below[cell]);
    const auto gap = static_cast<T>(table.gap[cell]);
    const T u = (static_cast<T>(load_le<std::uint16_t>(draws, i)) + T{0.5}) * T{0x1p-16};
    codes[i] = static_cast<std::uint8_t>(low + (u * gap < at - low ? gap : T{0}));
  }
}

// out[i] = (2 sum - zero) * factor; sums are below 2^32.
template <typename T, typename Sum>
void values_of(const Sum* sums, std::int64_t zero, T factor, std::span<T> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<T>(2 * static_cast<std::int64_t>(sums[i]) - zero) * factor;
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
