#pragma once

#include "compress/kernel_format.h"

namespace gradwire {

// Kernels in the sense of kernel_format.h; encode() never fails.
struct NaturalKernel {
  std::size_t bytes(std::size_t elems, std::size_t) const { return (elems + 7) / 8 + elems; }
  template <typename T>
  Status encode(const SliceKey& key, std::span<const T> x, ByteSpan wire) const;
  template <typename T>
  Status decode(const SliceKey& key, ConstByteSpan wire, bool add, std::span<T> dst) const;
};

struct NaturalWindowKernel {
  std::size_t bytes(std::size_t elems, std::size_t) const { return elems; }
  template <typename T>
  Status encode(const SliceKey& key, std::span<const T> x, ByteSpan wire) const;
  template <typename T>
  Status decode(const SliceKey& key, ConstByteSpan wire, bool add, std::span<T> dst) const;
};

}  // namespace gradwire
