#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/text.h"
#include "compress/code_groups.h"
#include "compress/little_endian.h"
#include "compress/lossless/lossless_layout.h"
#include "compress/lossless/lossless_loops.h"

namespace gradwire::cpu {
namespace {

Status corrupt(const std::string& what) { return {Code::kCorruptPayload, what}; }

// Takes bytes from the front; null when there are not so many.
class Reader {
 public:
  explicit Reader(ConstByteSpan bytes) : bytes_(bytes) {}
  const std::byte* take(std::size_t count) {
    if (count > bytes_.size()) return nullptr;
    const std::byte* front = bytes_.data();
    bytes_ = bytes_.subspan(count);
    return front;
  }
  std::size_t left() const { return bytes_.size(); }

 private:
  ConstByteSpan bytes_;
};

Status too_short(const Reader& reader) {
  return corrupt(format("it ends early: %zu bytes are left", reader.left()));
}

template <typename T>
struct BlockHead {
  unsigned width = 0;
  unsigned omitted = 0;
  unsigned base = 0;
  std::size_t escapes = 0;
};

template <typename T>
Result<BlockHead<T>> read_head(unsigned head, Reader& reader) {
  using Layout = LosslessLayout<T>;
  const std::byte* from = reader.take(kLosslessHead<T> - 1);
  if (from == nullptr) return too_short(reader);
  const BlockHead<T> read{head % 16, head / 16, load_le<typename Layout::Exponent>(from),
                          load_le<std::uint16_t>(from + sizeof(typename Layout::Exponent))};
  if (read.width <= kMostCodeBits && read.omitted <= Layout::kPlanes + 1 &&
      read.base < Layout::kExponents && (read.width > 0 || read.escapes == 0)) {
    return read;
  }
  return corrupt(format("head %02x, base %u and %zu escapes belong to no block", head, read.base,
                        read.escapes));
}

// Exponent fields from codes and exceptions.
template <typename T>
Status read_exponents(const BlockHead<T>& head, std::size_t count, Reader& reader,
                      LosslessParts<T>& parts) {
  using Exponent = typename LosslessLayout<T>::Exponent;
  if (head.width == 0) {
    std::fill_n(parts.exponents.begin(), count, static_cast<Exponent>(head.base));
    return {};
  }
  const int width = static_cast<int>(head.width);
  const std::byte* codes = reader.take(code_bytes(count, width));
  const std::byte* exceptions = reader.take(head.escapes * sizeof(Exponent));
  if (codes == nullptr || exceptions == nullptr) return too_short(reader);
  if (!read_codes(width, codes, count, parts.codes.data())) {
    return corrupt("bits behind the last code are set (expected 0)");
  }
  std::fill(parts.codes.begin() + static_cast<std::ptrdiff_t>(count), parts.codes.end(),
            std::uint8_t{0});
  const auto escape = static_cast<std::uint8_t>((1u << head.width) - 1);
  const auto base = static_cast<Exponent>(head.base);
  for (std::size_t i = 0; i < count; ++i) {
    parts.exponents[i] = static_cast<Exponent>(base - parts.codes[i]);
  }
  const std::size_t escapes = count_at_least(parts.codes.data(), escape);
  // Codes above the base have no exponent, unless they stand for exceptions.
  const std::size_t above =
      head.base >= 255 ? 0 : count_at_least(parts.codes.data(), head.base + 1);
  if (above != (escape > head.base ? escapes : 0) || escapes != head.escapes) {
    return corrupt(format("%zu codes below base %u, %zu codes for %zu exceptions", above, head.base,
                          escapes, head.escapes));
  }
  if (escapes == 0) return {};
  bool sound = true;
  std::size_t next = 0;
  for_each_escape(parts.codes.data(), count, escape, [&](std::size_t i) {
    const auto exponent = load_le<Exponent>(exceptions, next++);
    sound = sound && exponent < LosslessLayout<T>::kExponents;
    parts.exponents[i] = exponent;
  });
  return sound ? Status() : corrupt("an exception is no exponent");
}

// Elements from exponents, tops and planes, as bits.
template <typename T>
Status read_tail(unsigned omitted, std::size_t count, Reader& reader, LosslessParts<T>& parts) {
  using Layout = LosslessLayout<T>;
  using Bits = typename Layout::Bits;
  for (std::size_t i = 0; i < count; ++i) {
    parts.bits[i] = static_cast<Bits>(parts.exponents[i]) << Layout::kMantissa;
  }
  if (omitted > Layout::kPlanes) return {};
  const std::byte* tops = reader.take(code_bytes(count, Layout::kTopBits));
  if (tops == nullptr) return too_short(reader);
  if (!read_codes(Layout::kTopBits, tops, count, parts.tops.data())) {
    return corrupt("bits behind the last top are set (expected 0)");
  }
  constexpr int kTopMantissa = Layout::kTopBits - 1;
  for (std::size_t i = 0; i < count; ++i) {
    const Bits top = parts.tops[i];
    const Bits mantissa = top & ((1u << kTopMantissa) - 1);
    parts.bits[i] |=
        top >> kTopMantissa << (8 * sizeof(T) - 1) | mantissa << (Layout::kMantissa - kTopMantissa);
  }
  for (unsigned plane = Layout::kPlanes; plane-- > omitted;) {
    const std::byte* from = reader.take(count);
    if (from == nullptr) return too_short(reader);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(from);
    for (std::size_t i = 0; i < count; ++i) {
      parts.bits[i] |= static_cast<Bits>(bytes[i]) << (8 * plane);
    }
  }
  return {};
}

// read_tail() of a whole block of fp32, into x, by vectors.
Status merge_tail(unsigned omitted, Reader& reader, const LosslessParts<float>& parts, bool add,
                  std::span<float> x) {
  LosslessRows rows{parts.exponents.data(), nullptr, nullptr, nullptr};
  for (const auto& [row, most_omitted] :
       {std::pair(&rows.tops, 2u), std::pair(&rows.high, 1u), std::pair(&rows.low, 0u)}) {
    if (omitted > most_omitted) continue;
    *row = reinterpret_cast<const std::uint8_t*>(reader.take(kLosslessBlock));
    if (*row == nullptr) return too_short(reader);
  }
  lossless_merge(rows, add, x.data());
  return {};
}

template <typename T>
Status decode_block(Reader& reader, bool add, std::span<T> x) {
  const std::byte* head = reader.take(1);
  if (head == nullptr) return too_short(reader);
  LosslessParts<T> parts;
  const auto value = std::to_integer<unsigned>(*head);
  if (value == kLosslessRaw) {
    const std::byte* raw = reader.take(x.size() * sizeof(T));
    if (raw == nullptr) return too_short(reader);
    std::memcpy(parts.bits.data(), raw, x.size() * sizeof(T));
  } else {
    GW_ASSIGN(const BlockHead<T> read, read_head<T>(value, reader));
    GW_TRY(read_exponents(read, x.size(), reader, parts));
    if constexpr (std::is_same_v<T, float>) {
      if (x.size() == kLosslessBlock) return merge_tail(read.omitted, reader, parts, add, x);
    }
    GW_TRY(read_tail(read.omitted, x.size(), reader, parts));
  }
  if (!add) {
    std::memcpy(x.data(), parts.bits.data(), x.size() * sizeof(T));
    return {};
  }
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += std::bit_cast<T>(parts.bits[i]);
  return {};
}

}  // namespace

template <typename T>
Status lossless_decode(ConstByteSpan wire, bool add, std::span<T> x) {
  Reader reader(wire);
  for (std::size_t begin = 0, b = 0; begin < x.size(); begin += kLosslessBlock, ++b) {
    const auto block = x.subspan(begin, std::min(kLosslessBlock, x.size() - begin));
    fetch_ahead(reader.take(0), block.size_bytes());
    const Status status = decode_block(reader, add, block);
    if (!status.ok()) return status.with_context(format("block %zu", b));
  }
  return reader.left() == 0 ? Status()
                            : corrupt(format("%zu bytes follow the last block", reader.left()));
}

template Status lossless_decode<float>(ConstByteSpan, bool, std::span<float>);
template Status lossless_decode<double>(ConstByteSpan, bool, std::span<double>);

}  // namespace gradwire::cpu
