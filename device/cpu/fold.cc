// In blocks that stay in the first-level cache: the sources are folded into an accumulator, which
// is then stored to every target. So every source is read once and every target written once, the
// loops never see two pointers that may alias, and wide stores are whole cache lines.
#include "device/fold.h"

#include <algorithm>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "base/small_floats.h"

namespace gradwire {
namespace {

constexpr std::int64_t kBlock = 512;     // elements
constexpr std::size_t kAhead = 8 << 10;  // bytes: two pages, which the hardware does not cross
constexpr std::size_t kLine = 64;

// Whole lines from a line-aligned block to a line-aligned target.
void stream_lines(std::byte* to, const std::byte* from, std::size_t lines) {
#if defined(__AVX512F__)
  for (std::size_t i = 0; i < lines; ++i) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to) + i, _mm512_loadu_si512(from + i * kLine));
  }
#elif defined(__AVX__)
  for (std::size_t i = 0; i < 2 * lines; ++i) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to) + i,
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from) + i));
  }
#elif defined(__SSE2__)
  for (std::size_t i = 0; i < 4 * lines; ++i) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i,
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i));
  }
#else
  std::memcpy(to, from, lines * kLine);
#endif
}

// Asks for the cache lines of a block to come.
void fetch(const std::byte* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += kLine) __builtin_prefetch(from + i);
}

void store(Stores stores, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (stores == Stores::kCached || reinterpret_cast<std::uintptr_t>(to) % kLine != 0) {
    std::memcpy(to, from, bytes);
    return;
  }
  const std::size_t lines = bytes / kLine;
  stream_lines(to, from, lines);
  std::memcpy(to + lines * kLine, from + lines * kLine, bytes - lines * kLine);
}

// How an element type is kept and in what it is combined.
template <typename T>
struct Plain {
  using Kept = T;
  using Combined = T;
  static T widen(T value) { return value; }
  static T narrow(T value) { return value; }
};
struct Half {
  using Kept = std::uint16_t;
  using Combined = float;
  static float widen(std::uint16_t value) { return float_from_fp16(value); }
  static std::uint16_t narrow(float value) { return fp16_from_float(value); }
};
struct Brain {
  using Kept = std::uint16_t;
  using Combined = float;
  static float widen(std::uint16_t value) { return float_from_bf16(value); }
  static std::uint16_t narrow(float value) { return bf16_from_float(value); }
};

template <typename Element>
void combine(ReduceOp op, typename Element::Combined* __restrict sum,
             const typename Element::Kept* __restrict from, std::int64_t count) {
  using Combined = typename Element::Combined;
  switch (op) {
    case ReduceOp::kMax:
      for (std::int64_t i = 0; i < count; ++i) sum[i] = std::max(sum[i], Element::widen(from[i]));
      return;
    case ReduceOp::kMin:
      for (std::int64_t i = 0; i < count; ++i) sum[i] = std::min(sum[i], Element::widen(from[i]));
      return;
    case ReduceOp::kProduct:
      for (std::int64_t i = 0; i < count; ++i) {
        sum[i] = static_cast<Combined>(sum[i] * Element::widen(from[i]));
      }
      return;
    default:
      for (std::int64_t i = 0; i < count; ++i) {
        sum[i] = static_cast<Combined>(sum[i] + Element::widen(from[i]));
      }
  }
}

template <typename Element>
void fold_type(ReduceOp op, std::span<const std::byte* const> sources,
               std::span<std::byte* const> targets, std::int64_t elems, Stores stores) {
  using Kept = typename Element::Kept;
  using Combined = typename Element::Combined;
  alignas(kLine) Combined sum[kBlock];
  alignas(kLine) Kept out[kBlock];
  const auto factor = static_cast<Combined>(1.0 / static_cast<double>(sources.size()));
  const bool scaled = op == ReduceOp::kMean && sources.size() > 1;
  for (std::int64_t begin = 0; begin < elems; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, elems - begin);
    const std::size_t offset = static_cast<std::size_t>(begin) * sizeof(Kept);
    for (const std::byte* source : sources) {
      fetch(source + offset + kAhead, static_cast<std::size_t>(count) * sizeof(Kept));
    }
    const auto* first = reinterpret_cast<const Kept*>(sources[0] + offset);
    for (std::int64_t i = 0; i < count; ++i) sum[i] = Element::widen(first[i]);
    for (const std::byte* source : sources.subspan(1)) {
      combine<Element>(op, sum, reinterpret_cast<const Kept*>(source + offset), count);
    }
    if (scaled) {
      for (std::int64_t i = 0; i < count; ++i) sum[i] = static_cast<Combined>(sum[i] * factor);
    }
    const void* result = sum;
    if constexpr (!std::is_same_v<Kept, Combined>) {
      for (std::int64_t i = 0; i < count; ++i) out[i] = Element::narrow(sum[i]);
      result = out;
    }
    for (std::byte* target : targets) {
      store(stores, target + offset, static_cast<const std::byte*>(result),
            static_cast<std::size_t>(count) * sizeof(Kept));
    }
  }
}

}  // namespace

void fold(ReduceOp op, DType dtype, std::span<const std::byte* const> sources,
          std::span<std::byte* const> targets, std::int64_t elems, Stores stores) {
  switch (dtype) {
    case DType::kF64: return fold_type<Plain<double>>(op, sources, targets, elems, stores);
    case DType::kF32: return fold_type<Plain<float>>(op, sources, targets, elems, stores);
    case DType::kI64: return fold_type<Plain<std::int64_t>>(op, sources, targets, elems, stores);
    case DType::kI32: return fold_type<Plain<std::int32_t>>(op, sources, targets, elems, stores);
    case DType::kI8: return fold_type<Plain<std::int8_t>>(op, sources, targets, elems, stores);
    case DType::kU8: return fold_type<Plain<std::uint8_t>>(op, sources, targets, elems, stores);
    case DType::kF16: return fold_type<Half>(op, sources, targets, elems, stores);
    case DType::kBF16: return fold_type<Brain>(op, sources, targets, elems, stores);
  }
}

void copy_with(Stores stores, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
  if (stores == Stores::kCached || bytes <= head) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  store(stores, to + head, from + head, bytes - head);
}

void finish_stores() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace gradwire
