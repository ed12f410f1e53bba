#pragma once

#include "compress/groups.h"
#include "compress/kernel_format.h"

namespace gradwire {

// A kernel in the sense of kernel_format.h.
struct OnebitKernel {
  std::size_t group = 4096;  // elements that share two means; 0: the whole slice

  std::size_t group_of(std::size_t elems) const { return group == 0 ? elems : group; }
  static std::size_t group_bytes(std::size_t n, std::size_t element_bytes) {
    return 2 * element_bytes + (n + 7) / 8;
  }
  std::size_t bytes(std::size_t elems, std::size_t element_bytes) const {
    const std::size_t whole = elems / group_of(elems);
    const std::size_t rest = elems % group_of(elems);
    return whole * group_bytes(group_of(elems), element_bytes) +
           (rest == 0 ? 0 : group_bytes(rest, element_bytes));
  }
  std::int64_t seam() const { return static_cast<std::int64_t>(group); }
  // kInvalidArgument for elements that are not finite.
  template <typename T>
  Status encode(const SliceKey& key, std::span<const T> x, ByteSpan wire) const;
  template <typename T>
  Status decode(const SliceKey& key, ConstByteSpan wire, bool add, std::span<T> dst) const;
};

}  // namespace gradwire
