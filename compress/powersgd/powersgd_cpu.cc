#include <algorithm>
#include <functional>
#include <vector>

#include "compress/powersgd/powersgd_kernels.h"
#include "compress/powersgd/thin_loops.h"
#include "compress/simd/line_writer.h"
#include "device/fold.h"

namespace gradwire::cpu {
namespace {

// The loops for an element type.
template <typename T>
struct ThinLoops {
  static constexpr auto kTimes = plain::times<T>;
  static constexpr auto kTransposedTimes = plain::transposed_times<T>;
  static constexpr auto kProduct = plain::product<T>;
  static constexpr auto kTakeAway = plain::take_product_away<T>;
};
template <>
struct ThinLoops<float> {
  static constexpr auto kTimes = simd::times;
  static constexpr auto kTransposedTimes = simd::transposed_times;
  static constexpr auto kProduct = simd::product;
  static constexpr auto kTakeAway = simd::take_product_away;
};

}  // namespace

template <typename T>
void times(const Corrected<T>& m, std::span<const T> qt, const ThinShape& shape, std::span<T> pt,
           ThinSum<T>* sum) {
  ThinLoops<T>::kTimes(m, qt, shape, 0, shape.a, pt.data(), sum);
  if (sum != nullptr) finish_stores();
}

template <typename T>
void transposed_times(std::span<const T> m, std::span<const T> pt, const ThinShape& shape,
                      std::span<T> qt) {
  std::fill(qt.begin(), qt.end(), T{0});
  ThinLoops<T>::kTransposedTimes(m, pt, shape, 0, std::min(kRowBlock, shape.a), qt.data());
  std::vector<T> block(shape.a > kRowBlock ? qt.size() : 0);
  for (std::size_t first = kRowBlock; first < shape.a; first += kRowBlock) {
    const std::size_t last = std::min(first + kRowBlock, shape.a);
    std::fill(block.begin(), block.end(), T{0});
    ThinLoops<T>::kTransposedTimes(m, pt, shape, first, last, block.data());
    std::transform(qt.begin(), qt.end(), block.begin(), qt.begin(), std::plus<T>());
  }
}

template <typename T>
void product(std::span<const T> pt, std::span<const T> qt, const ThinShape& shape, std::span<T> m) {
  constexpr std::size_t kRun = LineWriter::kRoom / sizeof(T);
  LineWriter to(reinterpret_cast<std::byte*>(m.data()), m.size_bytes());
  for (std::size_t i = 0; i < shape.a; ++i) {
    for (std::size_t j = 0; j < shape.c; j += kRun) {
      const std::size_t count = std::min(kRun, shape.c - j);
      ThinLoops<T>::kProduct(pt, qt, shape, i, j, count, reinterpret_cast<T*>(to.room()));
      to.commit(count * sizeof(T));
    }
  }
  to.finish();
}

template <typename T>
bool take_product_away(std::span<const T> pt, std::span<const T> qt, const ThinShape& shape,
                       T own_scale, std::span<T> next) {
  bool finite = true;
  for (std::size_t i = 0; i < shape.a; ++i) {
    finite &= ThinLoops<T>::kTakeAway(pt, qt, shape, i, 0, shape.c, own_scale, &next[i * shape.c]);
  }
  return finite;
}

#define GW_POWERSGD_KERNELS(T)                                                                   \
  template void times(const Corrected<T>&, std::span<const T>, const ThinShape&, std::span<T>,   \
                      ThinSum<T>*);                                                              \
  template void transposed_times(std::span<const T>, std::span<const T>, const ThinShape&,       \
                                 std::span<T>);                                                  \
  template void product(std::span<const T>, std::span<const T>, const ThinShape&, std::span<T>); \
  template bool take_product_away(std::span<const T>, std::span<const T>, const ThinShape&, T,   \
                                  std::span<T>)
GW_POWERSGD_KERNELS(float);
GW_POWERSGD_KERNELS(double);
#undef GW_POWERSGD_KERNELS

}  // namespace gradwire::cpu
