#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "compress/qsgd/qsgd_loops.h"

namespace gradwire::cpu::plain {
namespace {

template <typename T>
using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

template <typename T>
T value_of(const QsgdGrid& grid, QsgdMagnitude<T> to, int code) {
  const int level = code & ((1 << (grid.bits - 1)) - 1);
  const T magnitude = to.norm * (static_cast<T>(level) * to.step);
  const auto sign = static_cast<Bits<T>>(code >> (grid.bits - 1)) << (8 * sizeof(T) - 1);
  return std::bit_cast<T>(std::bit_cast<Bits<T>>(magnitude) ^ sign);
}

}  // namespace

template <typename T>
T largest_magnitude(const Corrected<T>& p) {
  Bits<T> largest = 0;
  for (std::size_t i = 0; i < p.size; ++i) {
    largest = std::max(largest, std::bit_cast<Bits<T>>(p[i]) & (~Bits<T>{0} >> 1));
  }
  return std::bit_cast<T>(largest);
}

template <typename T>
void round_to_codes(const QsgdGrid& grid, QsgdScaling<T> scaling, const Corrected<T>& p,
                    const std::uint8_t* draws, std::uint8_t* codes) {
  for (std::size_t i = 0; i < p.size; ++i) {
    const auto parts = static_cast<int>(std::nearbyint((p[i] * scaling.before) * scaling.by));
    const int level = (parts + draws[i]) >> 8;
    codes[i] = static_cast<std::uint8_t>(std::abs(level) | (level < 0 ? 1 : 0) << (grid.bits - 1));
  }
}

template <typename T>
void expand(const QsgdGrid& grid, QsgdMagnitude<T> to, const std::uint8_t* codes, bool add,
            std::span<T> dst) {
  for (std::size_t i = 0; i < dst.size(); ++i) {
    const T value = value_of(grid, to, codes[i]);
    dst[i] = add ? dst[i] + value : value;
  }
}

template <typename T>
void take_away(const QsgdGrid& grid, QsgdMagnitude<T> to, const std::uint8_t* codes, T own_scale,
               const Corrected<T>& p, T* next) {
  for (std::size_t i = 0; i < p.size; ++i) {
    next[i] = p[i] - value_of(grid, to, codes[i]) * own_scale;
  }
}

#define GW_QSGD_LOOPS(T)                                                             \
  template T largest_magnitude(const Corrected<T>&);                                 \
  template void round_to_codes(const QsgdGrid&, QsgdScaling<T>, const Corrected<T>&, \
                               const std::uint8_t*, std::uint8_t*);                  \
  template void expand(const QsgdGrid&, QsgdMagnitude<T>, const std::uint8_t*, bool, \
                       std::span<T>);                                                \
  template void take_away(const QsgdGrid&, QsgdMagnitude<T>, const std::uint8_t*, T, \
                          const Corrected<T>&, T*)
GW_QSGD_LOOPS(float);
GW_QSGD_LOOPS(double);
#undef GW_QSGD_LOOPS

}  // namespace gradwire::cpu::plain
