// Host kernels of dgc. T is float or double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/philox.h"
#include "compress/dgc/dgc_arithmetic.h"
#include "compress/topk/topk_kernels.h"

namespace gradwire {

// One rank's gradient and what it keeps, all of one size.
template <typename T>
struct MomentumStep {
  std::span<const T> grad;
  std::span<const T> u;
  std::span<const T> v;
  T factor = 1;  // multiplied into grad
  T momentum = 0;
  bool nesterov = false;

  MomentumStep part(std::size_t first, std::size_t count) const {
    return {grad.subspan(first, count),
            u.subspan(first, count),
            v.subspan(first, count),
            factor,
            momentum,
            nesterov};
  }
  // Asks memory for what next_v(i) reads.
  void fetch(std::size_t i) const {
    __builtin_prefetch(grad.data() + i);
    __builtin_prefetch(u.data() + i);
    __builtin_prefetch(v.data() + i);
  }
  // The new v of element i, rounded as accumulate() does.
  T next_v(std::size_t i) const {
    return next_momenta(grad[i] * factor, u[i], v[i], momentum, nesterov).v;
  }
};

namespace cpu {

// next_u and next_v of all elements. False when one of them is not finite.
template <typename T>
bool accumulate(const MomentumStep<T>& step, std::span<T> next_u, std::span<T> next_v);

// Chooses among next_v while it is written: accumulate(), and at the front of `found` what reaches
// `low`, as topk_collect(). False as accumulate().
template <typename T>
bool accumulate_and_collect(const MomentumStep<T>& step, TopkKey<T> low, std::span<T> next_u,
                            std::span<T> next_v, TopkScratch<T>& found, std::size_t& count);

// From which key on elements of the coming next_v seem to be among the largest `ratio`: of a sample
// of one element, drawn by `draws`, from each of `samples` stretches. At least 1.
template <typename T>
TopkKey<T> sampled_threshold(const MomentumStep<T>& step, double ratio, std::size_t samples,
                             const RandomStream& draws, std::vector<TopkKey<T>>& keys);

// Sum of squares in double, element i in partial sum i % 16, those added in order.
template <typename T>
double sum_of_squares(std::span<const T> x);

}  // namespace cpu
}  // namespace gradwire
