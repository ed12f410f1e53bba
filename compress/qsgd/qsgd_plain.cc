#include <algorithm>
#include <bit>

#include "compress/qsgd/qsgd_loops.h"

namespace gradwire::cpu::plain {
template <typename T>
T largest_magnitude(const Corrected<T>& p) {
  QsgdBits<T> largest = 0;
  for (std::size_t i = 0; i < p.size; ++i) {
    largest = std::max(largest, std::bit_cast<QsgdBits<T>>(p[i]) & (~QsgdBits<T>{0} >> 1));
  }
  return std::bit_cast<T>(largest);
}

template <typename T>
void round_to_codes(const QsgdGrid& grid, QsgdScaling<T> scaling, const Corrected<T>& p,
                    const QsgdDraws& draws, std::uint8_t* codes) {
  for (std::size_t i = 0; i < p.size; ++i) {
    codes[i] = qsgd_code(scaling, p[i], draws.bytes[i], *draws.stream, draws.first + i, grid.bits);
  }
}

template <typename T>
void expand(const QsgdGrid& grid, QsgdMagnitude<T> to, const std::uint8_t* codes, bool add,
            std::span<T> dst) {
  for (std::size_t i = 0; i < dst.size(); ++i) {
    const T value = qsgd_value(to, codes[i], grid.bits);
    dst[i] = add ? dst[i] + value : value;
  }
}

template <typename T>
void take_away(const QsgdGrid& grid, QsgdMagnitude<T> to, const std::uint8_t* codes, T own_scale,
               const Corrected<T>& p, T* next) {
  for (std::size_t i = 0; i < p.size; ++i) {
    next[i] = p[i] - qsgd_value(to, codes[i], grid.bits) * own_scale;
  }
}

#define GW_QSGD_LOOPS(T)                                                             \
  template T largest_magnitude(const Corrected<T>&);                                 \
  template void round_to_codes(const QsgdGrid&, QsgdScaling<T>, const Corrected<T>&, \
                               const QsgdDraws&, std::uint8_t*);                     \
  template void expand(const QsgdGrid&, QsgdMagnitude<T>, const std::uint8_t*, bool, \
                       std::span<T>);                                                \
  template void take_away(const QsgdGrid&, QsgdMagnitude<T>, const std::uint8_t*, T, \
                          const Corrected<T>&, T*)
GW_QSGD_LOOPS(float);
GW_QSGD_LOOPS(double);
#undef GW_QSGD_LOOPS

}  // namespace gradwire::cpu::plain
