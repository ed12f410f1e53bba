// dgc's inner loop. simd::, for fp32, takes the best instruction set of the machine and gives what
// plain:: gives.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>

#include "compress/dgc/dgc_kernels.h"

namespace gradwire::cpu {
namespace plain {

template <typename T>
bool accumulate(const MomentumStep<T>& step, T* next_u, T* next_v) {
  bool finite = true;
  for (std::size_t i = 0; i < step.grad.size(); ++i) {
    const Momenta<T> next = next_momenta(step.grad[i] * step.factor, step.u[i], step.v[i],
                                         step.momentum, step.nesterov);
    next_u[i] = next.u;
    next_v[i] = next.v;
    finite &= std::abs(next_u[i]) <= std::numeric_limits<T>::max() &&
              std::abs(next_v[i]) <= std::numeric_limits<T>::max();
  }
  return finite;
}

}  // namespace plain

namespace simd {

bool accumulate(const MomentumStep<float>& step, float* next_u, float* next_v);

}  // namespace simd

template <typename T>
struct DgcLoops {
  static constexpr auto kAccumulate = plain::accumulate<T>;
};
template <>
struct DgcLoops<float> {
  static constexpr auto kAccumulate = simd::accumulate;
};

}  // namespace gradwire::cpu
