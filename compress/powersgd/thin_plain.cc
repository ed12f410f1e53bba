#include <algorithm>
#include <vector>

#include "compress/finite.h"
#include "compress/powersgd/thin_loops.h"

namespace gradwire::cpu::plain {

template <typename T>
void times(const Corrected<T>& m, std::span<const T> qt, const ThinShape& shape, std::size_t first,
           std::size_t last, T* pt, ThinSum<T>* sum) {
  std::vector<T> row(std::min(kDotBlock, shape.c));
  LargestBits<T> largest;
  for (std::size_t i = first; i < last; ++i) {
    for (std::size_t k = 0; k < shape.r; ++k) pt[k * shape.a + i] = 0;
    for (std::size_t j = 0; j < shape.c; j += kDotBlock) {
      const std::size_t count = std::min(kDotBlock, shape.c - j);
      for (std::size_t l = 0; l < count; ++l) {
        row[l] = thin_element(m, sum, shape, i, j + l);
        largest.see(row[l]);
      }
      for (std::size_t k = 0; k < shape.r; ++k) {
        T lanes[kDotLanes] = {};
        const T* q = &qt[k * shape.c + j];
        for (std::size_t l = 0; l < count; ++l) {
          lanes[l % kDotLanes] = multiply_add(row[l], q[l], lanes[l % kDotLanes]);
        }
        pt[k * shape.a + i] += fold_lanes(lanes);
      }
      if (sum == nullptr) continue;
      std::copy_n(row.begin(), count, sum->to + i * shape.c + j);
    }
  }
  if (sum != nullptr) sum->largest = largest.value();
}

template <typename T>
void transposed_times(std::span<const T> m, std::span<const T> pt, const ThinShape& shape,
                      std::size_t first, std::size_t last, T* qt) {
  for (std::size_t i = first; i < last; ++i) {
    const T* row = &m[i * shape.c];
    for (std::size_t k = 0; k < shape.r; ++k) {
      const T p = pt[k * shape.a + i];
      T* q = &qt[k * shape.c];
      for (std::size_t j = 0; j < shape.c; ++j) q[j] = multiply_add(p, row[j], q[j]);
    }
  }
}

template <typename T>
void product(std::span<const T> pt, std::span<const T> qt, const ThinShape& shape, std::size_t i,
             std::size_t j, std::size_t count, T* out) {
  std::fill_n(out, count, T{0});
  for (std::size_t k = 0; k < shape.r; ++k) {
    const T p = pt[k * shape.a + i];
    const T* q = &qt[k * shape.c + j];
    for (std::size_t l = 0; l < count; ++l) out[l] = multiply_add(p, q[l], out[l]);
  }
}

template <typename T>
bool take_product_away(std::span<const T> pt, std::span<const T> qt, const ThinShape& shape,
                       std::size_t i, std::size_t j, std::size_t count, T own_scale, T* next) {
  bool finite = true;
  for (std::size_t l = 0; l < count; ++l) {
    T own;
    product(pt, qt, shape, i, j + l, 1, &own);
    next[l] -= own * own_scale;
    finite &= std::isfinite(next[l]);
  }
  return finite;
}

#define GW_THIN_LOOPS(T)                                                                       \
  template void times(const Corrected<T>&, std::span<const T>, const ThinShape&, std::size_t,  \
                      std::size_t, T*, ThinSum<T>*);                                           \
  template void transposed_times(std::span<const T>, std::span<const T>, const ThinShape&,     \
                                 std::size_t, std::size_t, T*);                                \
  template void product(std::span<const T>, std::span<const T>, const ThinShape&, std::size_t, \
                        std::size_t, std::size_t, T*);                                         \
  template bool take_product_away(std::span<const T>, std::span<const T>, const ThinShape&,    \
                                  std::size_t, std::size_t, std::size_t, T, T*)
GW_THIN_LOOPS(float);
GW_THIN_LOOPS(double);
#undef GW_THIN_LOOPS

}  // namespace gradwire::cpu::plain
