// The slices of terngrad:shared=false.
#pragma once

#include <cstddef>
#include <span>

#include "compress/kernel_format.h"

namespace gradwire {

inline constexpr std::size_t kTritsPerByte = 5;

// For make_kernel_format(). The layout stands in terngrad.h.
struct TritKernel {
  double clip = 0;

  std::size_t bytes(std::size_t elems, std::size_t) const {
    return sizeof(float) + (elems + kTritsPerByte - 1) / kTritsPerByte;
  }
  template <typename T>
  Status encode(const SliceKey& key, std::span<const T> x, ByteSpan wire) const;
  template <typename T>
  Status decode(const SliceKey& key, ConstByteSpan wire, bool add, std::span<T> out) const;
};

}  // namespace gradwire
