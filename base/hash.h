// A 64-bit content hash for names and for comparing replicas. Not for security.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/philox.h"
#include "gradwire/tensor.h"

namespace gradwire {

// Folds 8 bytes at a time through mix64; equal bytes give equal hashes on every little-endian
// machine.
inline std::uint64_t hash_bytes(ConstByteSpan bytes, std::uint64_t seed = 0) {
  std::uint64_t hash = mix64(seed ^ bytes.size());
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const std::size_t count = bytes.size() < 8 ? bytes.size() : 8;
    std::memcpy(&word, bytes.data(), count);
    hash = mix64(hash ^ word);
    bytes = bytes.subspan(count);
  }
  return hash;
}
inline std::uint64_t hash_name(std::string_view name) {
  return hash_bytes(std::as_bytes(std::span(name.data(), name.size())));
}

}  // namespace gradwire
