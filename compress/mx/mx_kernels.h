#pragma once

#include "compress/code_groups.h"
#include "compress/groups.h"
#include "compress/kernel_format.h"

namespace gradwire {

enum class MxType : std::uint8_t { kE4M3, kE5M2, kE3M2, kE2M3, kE2M1 };
inline constexpr std::size_t kMxBlock = 32;
inline constexpr unsigned kMxNaN = 255;

// A kernel in the sense of kernel_format.h.
struct MxKernel {
  MxType type = MxType::kE4M3;
  int bits = 8;

  std::size_t bytes(std::size_t elems, std::size_t) const {
    return group_count(elems, kMxBlock) + code_bytes(elems, bits);
  }
  static std::int64_t seam() { return kMxBlock; }
  // Never fails.
  template <typename T>
  Status encode(const SliceKey& key, std::span<const T> x, ByteSpan wire) const;
  template <typename T>
  Status decode(const SliceKey& key, ConstByteSpan wire, bool add, std::span<T> dst) const;
};

}  // namespace gradwire
