#pragma once

#include "compress/groups.h"
#include "compress/kernel_format.h"

namespace gradwire {

enum class Fp8Type : std::uint8_t { kE4M3, kE5M2 };

// A kernel in the sense of kernel_format.h.
struct Fp8Kernel {
  Fp8Type type = Fp8Type::kE4M3;
  std::size_t group = 512;  // elements that share a scale

  std::size_t bytes(std::size_t elems, std::size_t) const {
    return 4 * group_count(elems, group) + elems;
  }
  std::int64_t seam() const { return static_cast<std::int64_t>(group); }
  // Never fails.
  template <typename T>
  Status encode(const SliceKey& key, std::span<const T> x, ByteSpan wire) const;
  template <typename T>
  Status decode(const SliceKey& key, ConstByteSpan wire, bool add, std::span<T> dst) const;
};

}  // namespace gradwire
