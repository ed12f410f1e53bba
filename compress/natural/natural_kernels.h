#pragma once

#include "compress/kernel_format.h"

namespace gradwire {

// Kernels in the sense of kernel_format.h; encode() never fails.
struct NaturalKernel {
  std::size_t bytes(std::size_t elems, std::size_t) const { return (elems + 7) / 8 + elems; }
  static std::int64_t seam() { return 8; }
  static std::vector<std::size_t> sections(std::size_t elems) { return {(elems + 7) / 8, elems}; }
  template <typename T>
  Status encode(const SliceKey& key, std::span<const T> x, ByteSpan wire) const;
  template <typename T>
  Status decode(const SliceKey& key, ConstByteSpan wire, bool add, std::span<T> dst) const;
};

struct NaturalWindowKernel {
  std::size_t bytes(std::size_t elems, std::size_t) const { return elems; }
  static std::int64_t seam() { return 1; }
  template <typename T>
  Status encode(const SliceKey& key, std::span<const T> x, ByteSpan wire) const;
  template <typename T>
  Status decode(const SliceKey& key, ConstByteSpan wire, bool add, std::span<T> dst) const;
};

}  // namespace gradwire
