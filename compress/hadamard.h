// The randomised Hadamard transform of a block: y = H diag(signs) x / sqrt(n), orthonormal, so that
// it keeps sums of squares and spreads a large element over its block.
// Source: Ailon and Chazelle, "Approximate nearest neighbors and the fast Johnson-Lindenstrauss
// transform", STOC 2006; in compression Suresh et al., "Distributed mean estimation with limited
// communication", ICML 2017, section 3.
#pragma once

#include <cstddef>
#include <span>

#include "base/philox.h"
#include "compress/kernel_format.h"

namespace gradwire {

// Any length: a block that is no power of two is transformed as the powers of two of its binary
// digits, the largest first (300 elements: 256, 32, 8 and 4). Signs are the same on all ranks: of
// element e of the tensor, bit e % 32 of word e / 32 of the Philox stream (seed, kHadamardSigns,
// tensor, shared rank, stage, step); 1 means minus. Factors of 1/sqrt(n) are multiplied before the
// sums, which therefore overflow only if a result does. Results are the same bits on every machine.
class HadamardSigns {
 public:
  explicit HadamardSigns(const SliceKey& key);

  // x = the transform of x, elements begin, begin + 1, ... of the slice. T is float or double.
  template <typename T>
  void forward(std::size_t begin, std::span<T> x) const;
  // Takes it back.
  template <typename T>
  void inverse(std::size_t begin, std::span<T> x) const;

 private:
  template <typename T>
  void flip(std::size_t begin, std::span<T> x) const;

  RandomStream stream_;
  std::uint64_t first_;
};

}  // namespace gradwire
