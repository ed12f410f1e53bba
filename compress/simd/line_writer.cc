#include "compress/simd/line_writer.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "device/fold.h"

namespace gradwire::cpu {

LineWriter::LineWriter(std::byte* to, std::size_t bytes) : to_(to), streams_(bytes >= kStreamFrom) {
  if (!streams_) return;
  lead_ = held_ = reinterpret_cast<std::uintptr_t>(to) % kLine;
  to_ -= lead_;
}

void LineWriter::commit(std::size_t bytes) {
  if (!streams_) {
    to_ += bytes;
    return;
  }
  held_ += bytes;
  const std::size_t whole = held_ / kLine * kLine;
  if (whole == 0) return;
  flush(whole);
  held_ -= whole;
  std::memcpy(block_.data(), block_.data() + whole, held_);
  to_ += whole;
}

void LineWriter::finish() {
  if (!streams_) return;
  flush(held_);
  finish_stores();
}

// The first `bytes` of the block, but for those that are not of the range.
void LineWriter::flush(std::size_t bytes) {
  copy_with(Stores::kStreaming, to_ + lead_, block_.data() + lead_, bytes - lead_);
  lead_ = 0;
}

}  // namespace gradwire::cpu
