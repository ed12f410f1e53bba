// Types that are combined as they are kept go in stripes of a few registers: a stripe of every
// source is folded and stored to every target, which takes half the time of a pass over a block.
// The others, and what is to pass by the caches, go in blocks that stay in the first-level cache:
// the sources are folded into an accumulator, which is then stored to every target. Either way
// every source is read once and every target written once, and wide stores are whole cache lines.
#include "device/fold.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "base/small_floats.h"
#include "device/combine.h"

namespace gradwire {
namespace {

constexpr std::int64_t kBlock = 512;     // elements
constexpr std::size_t kAhead = 8 << 10;  // bytes: two pages, which the hardware does not cross
constexpr std::size_t kLine = 64;
constexpr std::size_t kStripeLines = 4;
constexpr std::size_t kStripe = kStripeLines * kLine;
// Of stripes: enough for what other cores and the last cache hold to arrive in time, and little
// enough to stay in the first-level cache. Never past the end, where another core may be at work.
constexpr std::size_t kStripeAhead = 2 << 10;

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

template <typename Element, typename Combine>
void combine_by(typename Element::Combined* __restrict sum,
                const typename Element::Kept* __restrict from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = Combine{}(sum[i], Element::widen(from[i]));
}

template <typename Element>
void combine_block(ReduceOp op, typename Element::Combined* sum, const typename Element::Kept* from,
                   std::int64_t count) {
  switch (op) {
    case ReduceOp::kMax: return combine_by<Element, combine::Larger>(sum, from, count);
    case ReduceOp::kMin: return combine_by<Element, combine::Smaller>(sum, from, count);
    case ReduceOp::kProduct: return combine_by<Element, combine::Multiply>(sum, from, count);
    default: return combine_by<Element, combine::Add>(sum, from, count);
  }
}

// A line of T, wherever it begins.
template <typename T>
struct LineOf {
  typedef T Aligned __attribute__((vector_size(kLine)));
  typedef T Anywhere __attribute__((vector_size(kLine), aligned(alignof(T)), may_alias));
};

struct Add {
  template <typename V>
  static void into(V& sum, const V& next) {
    sum = sum + next;
  }
};
struct Multiply {
  template <typename V>
  static void into(V& product, const V& next) {
    product = product * next;
  }
};
// As combine::Larger and combine::Smaller have it, but that a NaN keeps its payload: a comparison
// with one takes the second operand, so the first has to be put back where it is one.
template <typename V>
using BitsOf = decltype(V{} == V{});
struct TakeLarger {
  template <typename V>
  static void into(V& most, const V& next) {
    const V larger = most > next ? most : next;
    // Of 0 and -0 the bits of both are 0.
    const V equal =
        reinterpret_cast<V>(reinterpret_cast<BitsOf<V>>(most) & reinterpret_cast<BitsOf<V>>(next));
    const V number = most == next ? equal : larger;
    most = most != most ? most : number;
  }
};
struct TakeSmaller {
  template <typename V>
  static void into(V& least, const V& next) {
    const V smaller = least < next ? least : next;
    // Of 0 and -0 the bits of either are -0.
    const V equal =
        reinterpret_cast<V>(reinterpret_cast<BitsOf<V>>(least) | reinterpret_cast<BitsOf<V>>(next));
    const V number = least == next ? equal : smaller;
    least = least != least ? least : number;
  }
};

// Whether the lines of sources[i] are to be written too.
bool is_target(const std::byte* source, std::span<std::byte* const> targets) {
  return std::ranges::find(targets, source) != targets.end();
}

void fetch_stripe(const std::byte* from, bool to_write) {
  for (std::size_t k = 0; k < kStripeLines; ++k) {
    if (to_write) {
      __builtin_prefetch(from + k * kLine, 1);
    } else {
      __builtin_prefetch(from + k * kLine);
    }
  }
}

// As many whole stripes as there are; returns their elements.
template <typename T, typename Combine>
std::int64_t fold_stripes(std::span<const std::byte* const> sources,
                          std::span<std::byte* const> targets, std::int64_t elems,
                          const T* factor) {
  using Line = typename LineOf<T>::Aligned;
  using Anywhere = typename LineOf<T>::Anywhere;
  const std::size_t bytes = static_cast<std::size_t>(elems) * sizeof(T) / kStripe * kStripe;
  std::uint64_t owned = 0;  // bit i: sources[i] is a target
  for (std::size_t i = 0; i < std::min<std::size_t>(sources.size(), 64); ++i) {
    if (is_target(sources[i], targets)) owned |= std::uint64_t{1} << i;
  }
  for (std::size_t at = 0; at < bytes; at += kStripe) {
    const bool ahead = at + kStripeAhead < bytes;
    Line sum[kStripeLines];
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const auto* from = reinterpret_cast<const Anywhere*>(sources[i] + at);
      if (ahead) fetch_stripe(sources[i] + at + kStripeAhead, i < 64 && (owned >> i & 1) != 0);
      for (std::size_t k = 0; k < kStripeLines; ++k) {
        const Line next = from[k];
        if (i == 0) {
          sum[k] = next;
        } else {
          Combine::into(sum[k], next);
        }
      }
    }
    if (factor != nullptr) {
      for (Line& line : sum) line = line * *factor;
    }
    for (std::byte* target : targets) {
      auto* to = reinterpret_cast<Anywhere*>(target + at);
      for (std::size_t k = 0; k < kStripeLines; ++k) to[k] = sum[k];
    }
  }
  return static_cast<std::int64_t>(bytes / sizeof(T));
}

// Sums and products of integers wrap.
template <typename T>
struct Wrapping {
  using Type = T;
};
template <std::integral T>
struct Wrapping<T> {
  using Type = std::make_unsigned_t<T>;
};

template <typename T>
std::int64_t fold_stripes(ReduceOp op, std::span<const std::byte* const> sources,
                          std::span<std::byte* const> targets, std::int64_t elems) {
  using W = typename Wrapping<T>::Type;
  const auto factor = static_cast<W>(1.0 / static_cast<double>(sources.size()));
  const bool scaled = op == ReduceOp::kMean && sources.size() > 1;
  switch (op) {
    case ReduceOp::kMax: return fold_stripes<T, TakeLarger>(sources, targets, elems, nullptr);
    case ReduceOp::kMin: return fold_stripes<T, TakeSmaller>(sources, targets, elems, nullptr);
    case ReduceOp::kProduct: return fold_stripes<W, Multiply>(sources, targets, elems, nullptr);
    default: return fold_stripes<W, Add>(sources, targets, elems, scaled ? &factor : nullptr);
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
  std::int64_t begin = 0;
  if constexpr (std::is_same_v<Kept, Combined>) {
    if (stores == Stores::kCached) begin = fold_stripes<Kept>(op, sources, targets, elems);
  }
  for (; begin < elems; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, elems - begin);
    const std::size_t offset = static_cast<std::size_t>(begin) * sizeof(Kept);
    if (offset + kAhead < static_cast<std::size_t>(elems) * sizeof(Kept)) {
      for (const std::byte* source : sources) {
        fetch(source + offset + kAhead, static_cast<std::size_t>(count) * sizeof(Kept));
      }
    }
    const auto* first = reinterpret_cast<const Kept*>(sources[0] + offset);
    for (std::int64_t i = 0; i < count; ++i) sum[i] = Element::widen(first[i]);
    for (const std::byte* source : sources.subspan(1)) {
      combine_block<Element>(op, sum, reinterpret_cast<const Kept*>(source + offset), count);
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

void copy_and_own(std::byte* to, const std::byte* from, std::size_t bytes) {
  using Line = LineOf<std::uint64_t>;
  struct Loose {
    typedef std::uint64_t Lane __attribute__((vector_size(kLine), aligned(1), may_alias));
  };
  std::size_t at = 0;
  for (; at + kStripe <= bytes; at += kStripe) {
    if (at + kStripeAhead < bytes) fetch_stripe(from + at + kStripeAhead, true);
    for (std::size_t k = 0; k < kStripe; k += kLine) {
      const Line::Aligned line = *reinterpret_cast<const Loose::Lane*>(from + at + k);
      *reinterpret_cast<Loose::Lane*>(to + at + k) = line;
    }
  }
  if (at < bytes) std::memcpy(to + at, from + at, bytes - at);
}

void finish_stores() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace gradwire
