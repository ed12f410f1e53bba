// Writes a long range front to back without reading it first.
#pragma once

#include <array>
#include <cstddef>

namespace gradwire::cpu {

// A kernel writes into room() and says how much by commit(). Ranges of kStreamFrom bytes and more
// go past the caches in whole lines, through a block that stays in the nearest cache; shorter ones
// are written in place. Every byte of the range is committed once, in order; the range is complete
// after finish().
class LineWriter {
 public:
  static constexpr std::size_t kRoom = 4096;                        // bytes
  static constexpr std::size_t kStreamFrom = std::size_t{4} << 20;  // more than a core's own caches

  LineWriter(std::byte* to, std::size_t bytes);
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // Where the next bytes go: min(kRoom, what is left of the range) of them, aligned as in the
  // range. Valid until commit().
  std::byte* room() { return streams_ ? block_.data() + held_ : to_; }
  // At most kRoom bytes.
  void commit(std::size_t bytes);
  void finish();

 private:
  static constexpr std::size_t kLine = 64;

  void flush(std::size_t bytes);

  std::byte* to_;  // of block_[0] when streaming, else of the next byte
  bool streams_;
  std::size_t lead_ = 0;  // bytes of block_ that are not of the range: those before its start
  std::size_t held_ = 0;  // bytes in block_
  alignas(kLine) std::array<std::byte, kRoom + kLine> block_;
};

}  // namespace gradwire::cpu
