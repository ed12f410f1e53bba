// The codes of a payload, some hundred at a time, as one byte each.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <hwy/cache_control.h>

#include "compress/qsgd/code_packing.h"
#include "compress/simd/code_words.h"
#include "compress/simd/line_writer.h"
#include "gradwire/tensor.h"

namespace gradwire::cpu {

inline constexpr std::size_t kMostCodes = 512;

// Collects codes and lets whole groups of eight out as bytes.
class CodeWriter {
 public:
  static constexpr std::size_t kMost = kMostCodes;
  CodeWriter(int bits, ByteSpan bytes) : bits_(bits), bytes_(bytes.data(), bytes.size()) {}

  // Room for up to kMost codes; then commit() what was written.
  std::uint8_t* room() {
    return bits_ == 8 ? reinterpret_cast<std::uint8_t*>(bytes_.room()) : codes_.data() + held_;
  }
  void commit(std::size_t count) {
    if (bits_ == 8) return bytes_.commit(count);
    held_ += count;
    const std::size_t groups = held_ / 8;
    pack_words(bits_, codes_.data(), groups, bytes_.room());
    bytes_.commit(groups * static_cast<std::size_t>(bits_));
    std::copy_n(codes_.begin() + static_cast<std::ptrdiff_t>(8 * groups), held_ % 8,
                codes_.begin());
    held_ %= 8;
  }
  void finish() {
    if (held_ > 0) {
      std::fill(codes_.begin() + static_cast<std::ptrdiff_t>(held_), codes_.begin() + 8,
                std::uint8_t{0});
      std::array<std::byte, 8> last{};
      pack_codes(bits_, codes_.data(), 1, last.data());
      const std::size_t rest = (held_ * static_cast<std::size_t>(bits_) + 7) / 8;
      std::copy_n(last.begin(), rest, bytes_.room());
      bytes_.commit(rest);
    }
    bytes_.finish();
  }

 private:
  int bits_;
  LineWriter bytes_;
  std::size_t held_ = 0;  // fewer than 8 between commits
  std::array<std::uint8_t, kMost + 8> codes_;
};

// Hands codes out, reading bytes by groups of eight codes.
class CodeReader {
 public:
  static constexpr std::size_t kMost = kMostCodes;
  CodeReader(int bits, ConstByteSpan bytes)
      : bits_(static_cast<std::size_t>(bits)), bytes_(bytes) {}

  // The next `count` <= kMost codes; valid until the next call.
  const std::uint8_t* next(std::size_t count) {
    if (bits_ == 8) return next_bytes(count);
    if (held_ - taken_ < count) refill();
    taken_ += count;
    return codes_.data() + taken_ - count;
  }
  // After the last code: whether bits behind it are set.
  bool rest_is_zero() const {
    return std::all_of(codes_.begin() + static_cast<std::ptrdiff_t>(taken_),
                       codes_.begin() + static_cast<std::ptrdiff_t>(held_),
                       [](std::uint8_t code) { return code == 0; });
  }

 private:
  static constexpr std::size_t kLine = 64;
  static constexpr std::size_t kAhead = 4096;  // bytes: beyond the page where prefetchers stop

  const std::uint8_t* next_bytes(std::size_t count) {
    fetch_ahead(count);
    const auto* codes = reinterpret_cast<const std::uint8_t*>(bytes_.data());
    bytes_ = bytes_.subspan(count);
    return codes;
  }
  void fetch_ahead(std::size_t bytes) const {
    for (std::size_t i = 0; i < bytes; i += kLine) hwy::Prefetch(bytes_.data() + i + kAhead);
  }

  void refill() {
    std::copy(codes_.begin() + static_cast<std::ptrdiff_t>(taken_),
              codes_.begin() + static_cast<std::ptrdiff_t>(held_), codes_.begin());
    held_ -= taken_;
    taken_ = 0;
    const std::size_t groups = std::min((codes_.size() - held_) / 8, bytes_.size() / bits_);
    fetch_ahead(groups * bits_);
    unpack_words(static_cast<int>(bits_), bytes_.data(), groups, codes_.data() + held_);
    held_ += 8 * groups;
    bytes_ = bytes_.subspan(groups * bits_);
    if (bytes_.empty() || bytes_.size() >= bits_ || codes_.size() - held_ < 8) return;
    std::array<std::byte, 8> last{};
    std::copy(bytes_.begin(), bytes_.end(), last.begin());
    unpack_codes(static_cast<int>(bits_), last.data(), 1, codes_.data() + held_);
    held_ += 8;
    bytes_ = {};
  }

  std::size_t bits_;
  ConstByteSpan bytes_;
  std::size_t held_ = 0;
  std::size_t taken_ = 0;
  std::array<std::uint8_t, 2 * kMost + 16> codes_;
};

}  // namespace gradwire::cpu
