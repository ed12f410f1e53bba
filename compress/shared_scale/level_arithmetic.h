// What terngrad, global_qsgd and thc compute of one element: the same bits on every processor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

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

// u of a draw of 16 bits.
template <typename T>
constexpr T dither_unit(unsigned draw) {
  return (static_cast<T>(draw) + T{0.5}) * T{0x1p-16};
}

// s + sign(x) (floor(a) + [u < a - floor(a)]), a the place's level and s its most.
template <typename T>
constexpr std::uint8_t level_code(const LevelPlace<T>& place, T x, unsigned draw) {
  const T size = x < 0 ? -x : x;
  const T magnitude = place.clip < size ? place.clip : size;
  const T high = magnitude * place.before * place.by;
  const T a = place.most < high ? place.most : high;
  const int whole = static_cast<int>(a);
  const int level = whole + (dither_unit<T>(draw) < a - static_cast<T>(whole) ? 1 : 0);
  return static_cast<std::uint8_t>(static_cast<int>(place.most) + (x < 0 ? -level : level));
}

// The number below x's place, or the one above: drawn.
template <typename T>
constexpr std::uint8_t cell_code(const CellPlace<T>& place, const CellTable& table, T x,
                                 unsigned draw) {
  T at = x * place.before * place.by + place.half;
  at = at < T{0} ? T{0} : place.grid < at ? place.grid : at;
  auto cell = static_cast<std::size_t>(at);
  const auto last = static_cast<std::size_t>(place.grid) - 1;
  cell = cell < last ? cell : last;
  const auto low = static_cast<T>(table.below[cell]);
  const auto gap = static_cast<T>(table.gap[cell]);
  return static_cast<std::uint8_t>(low + (dither_unit<T>(draw) * gap < at - low ? gap : T{0}));
}

// (2 sum - zero) * factor; sums are below 2^32.
template <typename T>
constexpr T value_of_sum(std::int64_t sum, std::int64_t zero, T factor) {
  return static_cast<T>(2 * sum - zero) * factor;
}

}  // namespace gradwire
