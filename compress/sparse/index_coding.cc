#include "compress/sparse/index_coding.h"

#include <algorithm>
#include <bit>

#include "base/text.h"
#include "compress/little_endian.h"
#include "compress/sparse/bit_stream.h"

namespace gradwire {
namespace {

constexpr std::size_t kIndexBytes = 4;
constexpr int kMostWidth = 32;

Status corrupt(const std::string& what) { return {Code::kCorruptPayload, "indices: " + what}; }

Status too_short(std::size_t seen, std::size_t wanted) {
  return corrupt(format("%zu bytes (expected at least %zu)", seen, wanted));
}

std::size_t bytes_of_bits(std::size_t bits) { return (bits + 7) / 8; }

std::size_t bytes_of_gaps(std::size_t k, int width) {
  return 1 + bytes_of_bits(k * static_cast<std::size_t>(width));
}

int width_of(std::span<const std::uint32_t> indices) {
  std::uint32_t widest = indices[0];
  for (std::size_t i = 1; i < indices.size(); ++i) {
    widest |= indices[i] - indices[i - 1] - 1;  // as wide as the largest of them
  }
  return static_cast<int>(std::bit_width(widest));
}

// All kinds but kAuto.
std::size_t exact_bytes(IndexCoding coding, std::span<const std::uint32_t> indices, std::size_t n) {
  switch (coding) {
    case IndexCoding::kBitmap: return bytes_of_bits(n);
    case IndexCoding::kGaps: return bytes_of_gaps(indices.size(), width_of(indices));
    default: return indices.size() * kIndexBytes;
  }
}

IndexCoding fewest_bytes(std::span<const std::uint32_t> indices, std::size_t n) {
  auto best = IndexCoding::kU32;
  for (const IndexCoding other : {IndexCoding::kBitmap, IndexCoding::kGaps}) {
    if (exact_bytes(other, indices, n) < exact_bytes(best, indices, n)) best = other;
  }
  return best;
}

std::size_t write_u32(std::span<const std::uint32_t> indices, ByteSpan out) {
  for (std::size_t i = 0; i < indices.size(); ++i) store_le(out.data(), indices[i], i);
  return indices.size() * kIndexBytes;
}

std::size_t write_bitmap(std::span<const std::uint32_t> indices, std::size_t n, ByteSpan out) {
  const std::size_t bytes = bytes_of_bits(n);
  std::fill_n(out.begin(), bytes, std::byte{0});
  for (const std::uint32_t index : indices) out[index / 8] |= std::byte{1} << (index % 8);
  return bytes;
}

std::size_t write_gaps(std::span<const std::uint32_t> indices, ByteSpan out) {
  const int width = width_of(indices);
  out[0] = static_cast<std::byte>(width);
  BitWriter writer(out.subspan(1));
  std::uint32_t least = 0;
  for (const std::uint32_t index : indices) {
    writer.put(index - least, width);
    least = index + 1;
  }
  return 1 + writer.finish();
}

Result<std::size_t> read_u32(ConstByteSpan bytes, std::size_t n, std::span<std::uint32_t> out) {
  const std::size_t count = out.size() * kIndexBytes;
  if (bytes.size() < count) return too_short(bytes.size(), count);
  std::size_t least = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = load_le<std::uint32_t>(bytes.data(), i);
    if (out[i] < least || out[i] >= n) {
      return corrupt(
          format("index %u at place %zu (expected from %zu to %zu)", out[i], i, least, n - 1));
    }
    least = std::size_t{out[i]} + 1;
  }
  return count;
}

Result<std::size_t> read_bitmap(ConstByteSpan bytes, std::size_t n, std::span<std::uint32_t> out) {
  const std::size_t count = bytes_of_bits(n);
  if (bytes.size() < count) return too_short(bytes.size(), count);
  if (n % 8 != 0 && std::to_integer<unsigned>(bytes[count - 1]) >> (n % 8) != 0) {
    return corrupt("free bits of the bitmap are set");
  }
  std::size_t found = 0;
  for (std::size_t b = 0; b < count; ++b) {
    auto bits = std::to_integer<unsigned>(bytes[b]);
    for (; bits != 0; bits &= bits - 1, ++found) {
      if (found == out.size()) {
        return corrupt(format("more than %zu bits of the bitmap are set", out.size()));
      }
      out[found] =
          static_cast<std::uint32_t>(8 * b) + static_cast<std::uint32_t>(std::countr_zero(bits));
    }
  }
  if (found == out.size()) return count;
  return corrupt(format("%zu bits of the bitmap are set (expected %zu)", found, out.size()));
}

Result<std::size_t> read_gaps(ConstByteSpan bytes, std::size_t n, std::span<std::uint32_t> out) {
  if (bytes.empty()) return too_short(0, 1);
  const auto width = std::to_integer<int>(bytes[0]);
  if (width > kMostWidth) return corrupt(format("gaps of %d bits (expected at most 32)", width));
  const std::size_t count = bytes_of_gaps(out.size(), width);
  if (bytes.size() < count) return too_short(bytes.size(), count);
  BitReader reader(bytes.subspan(1, count - 1));
  std::uint64_t next = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    next += reader.get(width);
    if (next >= n) {
      return corrupt(format("index %llu at place %zu (expected at most %zu)",
                            static_cast<unsigned long long>(next), i, n - 1));
    }
    out[i] = static_cast<std::uint32_t>(next++);
  }
  if (!reader.rest_is_clear()) return corrupt("free bits behind the gaps are set");
  return count;
}

}  // namespace

std::string_view to_string(IndexCoding coding) {
  switch (coding) {
    case IndexCoding::kU32: return "u32";
    case IndexCoding::kBitmap: return "bitmap";
    case IndexCoding::kGaps: return "gaps";
    case IndexCoding::kAuto: return "auto";
  }
  return "?";
}

bool has_fixed_length(IndexCoding coding) {
  return coding == IndexCoding::kU32 || coding == IndexCoding::kBitmap;
}

std::size_t most_index_bytes(IndexCoding coding, std::size_t k, std::size_t n) {
  if (k == 0) return 0;
  const std::size_t u32 = k * kIndexBytes;
  const std::size_t bitmap = bytes_of_bits(n);
  const std::size_t gaps = bytes_of_gaps(k, static_cast<int>(std::bit_width(n - k)));
  switch (coding) {
    case IndexCoding::kU32: return u32;
    case IndexCoding::kBitmap: return bitmap;
    case IndexCoding::kGaps: return gaps;
    case IndexCoding::kAuto: break;
  }
  return 1 + std::min({u32, bitmap, gaps});
}

std::size_t most_index_bytes_up_to(IndexCoding coding, std::size_t most, std::size_t n) {
  if (most == 0) return 0;
  const std::size_t u32 = most * kIndexBytes;
  const std::size_t bitmap = bytes_of_bits(n);
  // Fewer indices may have wider gaps: of each width the most indices that can have it.
  std::size_t gaps = most_index_bytes(IndexCoding::kGaps, most, n);
  for (int width = 1; width <= kMostWidth; ++width) {
    const std::size_t least_gap = std::size_t{1} << (width - 1);
    if (least_gap >= n) break;
    const std::size_t k = std::min(most, n - least_gap);
    gaps = std::max(gaps, most_index_bytes(IndexCoding::kGaps, k, n));
  }
  switch (coding) {
    case IndexCoding::kU32: return u32;
    case IndexCoding::kBitmap: return bitmap;
    case IndexCoding::kGaps: return gaps;
    case IndexCoding::kAuto: break;
  }
  return 1 + std::min({u32, bitmap, gaps});
}

std::size_t encode_indices(IndexCoding coding, std::span<const std::uint32_t> indices,
                           std::size_t n, ByteSpan out) {
  if (indices.empty()) return 0;
  switch (coding) {
    case IndexCoding::kU32: return write_u32(indices, out);
    case IndexCoding::kBitmap: return write_bitmap(indices, n, out);
    case IndexCoding::kGaps: return write_gaps(indices, out);
    case IndexCoding::kAuto: break;
  }
  const IndexCoding chosen = fewest_bytes(indices, n);
  out[0] = static_cast<std::byte>(chosen);
  return 1 + encode_indices(chosen, indices, n, out.subspan(1));
}

Result<std::size_t> decode_indices(IndexCoding coding, ConstByteSpan bytes, std::size_t n,
                                   std::span<std::uint32_t> indices) {
  if (indices.empty()) return std::size_t{0};
  switch (coding) {
    case IndexCoding::kU32: return read_u32(bytes, n, indices);
    case IndexCoding::kBitmap: return read_bitmap(bytes, n, indices);
    case IndexCoding::kGaps: return read_gaps(bytes, n, indices);
    case IndexCoding::kAuto: break;
  }
  if (bytes.empty()) return too_short(0, 1);
  const auto tag = std::to_integer<unsigned>(bytes[0]);
  if (tag > static_cast<unsigned>(IndexCoding::kGaps)) {
    return corrupt(format("tag %u (expected 0 for u32, 1 for bitmap or 2 for gaps)", tag));
  }
  GW_ASSIGN(const std::size_t count,
            decode_indices(static_cast<IndexCoding>(tag), bytes.subspan(1), n, indices));
  return 1 + count;
}

}  // namespace gradwire
