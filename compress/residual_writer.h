// What error feedback keeps for the next step, written as elements go by.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "base/elements.h"
#include "base/text.h"
#include "compress/finite.h"
#include "compress/simd/line_writer.h"
#include "gradwire/wire_format.h"

namespace gradwire {

// Writes feedback.next front to back, long ones past the caches. T is float or double.
template <typename T>
class ResidualWriter {
 public:
  explicit ResidualWriter(const Feedback& feedback)
      : next_(elements<T>(feedback.next)),
        scale_(static_cast<T>(feedback.scale)),
        lines_(reinterpret_cast<std::byte*>(next_.data()), next_.size_bytes()) {}

  // The next `count` elements: p - own * scale, product and difference rounded one by one.
  void put(const T* p, const T* own, std::size_t count) {
    constexpr std::size_t kRun = cpu::LineWriter::kRoom / sizeof(T);
    const T scale = scale_;
    for (std::size_t at = 0; at < count; at += kRun) {
      const std::size_t run = std::min(kRun, count - at);
      T* const left = reinterpret_cast<T*>(lines_.room());
      LargestBits<T> largest;
      for (std::size_t i = 0; i < run; ++i) {
        left[i] = p[at + i] - own[at + i] * scale;
        largest.see(left[i]);
      }
      largest_.see(largest);
      lines_.commit(run * sizeof(T));
    }
  }

  // After the last element: next is complete. kInvalidArgument, naming the element of `shape`,
  // unless it is finite.
  Status finish(const Shape& shape) {
    lines_.finish();
    if (largest_.finite()) return {};
    std::size_t i = 0;
    while (std::isfinite(next_[i])) ++i;
    return {Code::kInvalidArgument,
            format("the residual of element %zu of %s is %g (expected a finite number: the "
                   "method's range overflowed)",
                   i, to_string(shape).c_str(), static_cast<double>(next_[i]))};
  }

 private:
  std::span<T> next_;
  T scale_;
  cpu::LineWriter lines_;  // to next_
  LargestBits<T> largest_;
};

}  // namespace gradwire
