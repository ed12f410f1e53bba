// What a kernel compresses when error feedback is part of its pass over memory.
#pragma once

#include <cstddef>
#include <span>

namespace gradwire {

// p = grad, or grad + residual, of `size` elements.
template <typename T>
struct Corrected {
  const T* grad = nullptr;
  const T* residual = nullptr;  // null: the gradient alone
  std::size_t size = 0;

  explicit Corrected(std::span<const T> g, const T* e = nullptr)
      : grad(g.data()), residual(e), size(g.size()) {}

  T operator[](std::size_t i) const {
    return residual == nullptr ? grad[i] : grad[i] + residual[i];
  }
  Corrected part(std::size_t first, std::size_t count) const {
    return Corrected(std::span<const T>(grad + first, count),
                     residual == nullptr ? nullptr : residual + first);
  }
};

// out = p, which has a residual, of a range that is read on: asks memory for what lies two pages
// ahead, because hardware prefetchers stop at the end of one.
template <typename T>
void sum_ahead(const Corrected<T>& p, T* out) {
  constexpr std::size_t kAhead = 8192 / sizeof(T);
  constexpr std::size_t kLine = 64 / sizeof(T);
  for (std::size_t i = 0; i < p.size; i += kLine) {
    __builtin_prefetch(p.grad + i + kAhead);
    __builtin_prefetch(p.residual + i + kAhead);
  }
  for (std::size_t i = 0; i < p.size; ++i) out[i] = p.grad[i] + p.residual[i];
}

}  // namespace gradwire
