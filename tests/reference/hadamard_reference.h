// The randomised block Hadamard transform, stage by stage and element by element.
#pragma once

#include <cmath>
#include <vector>

#include "base/philox.h"
#include "compress/kernel_format.h"

namespace gradwire::testing {

template <typename T>
void hadamard_stages(T* x, std::size_t n) {
  int log2 = 0;
  while ((std::size_t{1} << log2) < n) ++log2;
  T factor = log2 % 2 == 0 ? T{1} : static_cast<T>(1 / std::sqrt(2.0));
  for (int i = 0; i < log2 / 2; ++i) factor /= 2;
  for (std::size_t i = 0; i < n; ++i) x[i] *= factor;
  for (std::size_t half = 1; half < n; half *= 2) {
    for (std::size_t i = 0; i < n; ++i) {
      if ((i & half) != 0) continue;
      const T a = x[i];
      const T b = x[i + half];
      x[i] = a + b;
      x[i + half] = a - b;
    }
  }
}

inline bool hadamard_minus(const SliceKey& key, std::size_t i) {
  const RandomStream signs(key.seed, RandomUse::kHadamardSigns, key.slice.tensor, kSharedRank,
                           key.slice.stage, key.slice.step);
  const std::uint64_t element = static_cast<std::uint64_t>(key.slice.first) + i;
  return ((signs.word(element / 32) >> (element % 32)) & 1u) != 0;
}

// Elements begin, begin + 1, ... of the slice.
template <typename T>
void hadamard_reference(const SliceKey& key, std::size_t begin, std::vector<T>& x) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (hadamard_minus(key, begin + i)) x[i] = -x[i];
  }
  std::size_t done = 0;
  while (done < x.size()) {
    std::size_t n = 1;
    while (2 * n <= x.size() - done) n *= 2;
    hadamard_stages(x.data() + done, n);
    done += n;
  }
}

}  // namespace gradwire::testing
