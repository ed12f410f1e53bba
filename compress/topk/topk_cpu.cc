// Exact selection in one pass: a small stratified sample bounds the k-th largest magnitude from
// below and above, the pass collects what lies above the lower bound (about 1.2 k elements in order
// of index), and only those between the bounds are partitioned to find the k-th itself. The sample
// decides speed alone: when it misleads, the pass runs again with all non-zero elements.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <type_traits>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "base/philox.h"
#include "base/text.h"
#include "compress/little_endian.h"
#include "compress/topk/topk_kernels.h"

namespace gradwire::cpu {
namespace {

template <typename T>
using Key = TopkKey<T>;

// Magnitudes as integers: the order of |x|, infinity above all numbers, NaN above infinity.
template <typename T>
Key<T> key_of(T value) {
  return std::bit_cast<Key<T>>(value) & (~Key<T>{0} >> 1);
}

constexpr std::size_t kBlock = 64;  // elements whose comparisons make one mask
constexpr std::size_t kSampleMost = 32768;
constexpr std::size_t kSampleLeast = 1024;
constexpr double kSigmas = 4;  // how far the bounds stand from the sample's estimate

template <typename K>
struct Bounds {
  K low = 1;       // the k-th largest key is at least this, or the sample misled
  K high = ~K{0};  // keys from here on are surely among the k largest, or the sample misled
};

template <typename T>
Bounds<Key<T>> sample_bounds(std::span<const T> x, std::size_t k, std::vector<Key<T>>& keys) {
  Bounds<Key<T>> bounds;
  const std::size_t samples = std::clamp(x.size() / 64, kSampleLeast, kSampleMost);
  if (x.size() < 2 * samples) return bounds;
  const std::size_t stride = x.size() / samples;
  keys.resize(samples);
  for (std::size_t s = 0; s < samples; ++s) {
    keys[s] = key_of(x[s * stride + mix64(s) % stride]);
  }
  const double rank =
      static_cast<double>(k) * static_cast<double>(samples) / static_cast<double>(x.size());
  const double margin = kSigmas * std::sqrt(rank) + 1;
  auto end = keys.end();
  const auto at_rank = [&keys, &end](double position) {  // ranks may only fall from call to call
    const auto nth = keys.begin() + static_cast<std::ptrdiff_t>(position);
    std::nth_element(keys.begin(), nth, end, std::greater<>());
    end = nth + 1;
    return std::max<Key<T>>(*nth, 1);
  };
  if (rank + margin < static_cast<double>(samples)) bounds.low = at_rank(rank + margin);
  if (rank > margin) bounds.high = at_rank(rank - margin);
  return bounds;
}

// Bit i: block[i]'s key is at least `low`.
template <typename T>
std::uint64_t mask_at_least(const T* block, Key<T> low) {
  std::uint64_t mask = 0;
#ifdef __AVX512F__
  constexpr std::size_t kLanes = 64 / sizeof(T);
  for (std::size_t i = 0; i < kBlock; i += kLanes) {
    const __m512i bits = _mm512_loadu_si512(block + i);
    std::uint64_t part = 0;
    if constexpr (sizeof(T) == 4) {
      const __m512i keys = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
      part = _mm512_cmpge_epu32_mask(keys, _mm512_set1_epi32(static_cast<int>(low)));
    } else {
      const __m512i keys = _mm512_and_si512(bits, _mm512_set1_epi64(0x7fffffffffffffff));
      part = _mm512_cmpge_epu64_mask(keys, _mm512_set1_epi64(static_cast<long long>(low)));
    }
    mask |= part << i;
  }
#else
  Key<T> largest = 0;  // a loop that any compiler makes vectors of; most blocks end here
  for (std::size_t i = 0; i < kBlock; ++i) largest = std::max(largest, key_of(block[i]));
  if (largest < low) return 0;
  for (std::size_t i = 0; i < kBlock; ++i) {
    mask |= std::uint64_t{key_of(block[i]) >= low ? 1u : 0u} << i;
  }
#endif
  return mask;
}

template <typename T>
std::uint64_t mask_of_rest(std::span<const T> rest, Key<T> low) {
  std::uint64_t mask = 0;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    mask |= std::uint64_t{key_of(rest[i]) >= low ? 1u : 0u} << i;
  }
  return mask;
}

// Elements with keys >= low, in order; returns how many.
template <typename T>
std::size_t collect(std::span<const T> x, Key<T> low, TopkScratch<T>& out) {
  std::size_t count = 0;
  for (std::size_t begin = 0; begin < x.size(); begin += kBlock) {
    const bool whole = x.size() - begin >= kBlock;
    std::uint64_t mask =
        whole ? mask_at_least(x.data() + begin, low) : mask_of_rest(x.subspan(begin), low);
    if (mask == 0) continue;
    if (out.index.size() < count + kBlock) {
      out.index.resize(2 * (count + kBlock));
      out.value.resize(2 * (count + kBlock));
    }
    std::uint32_t* index = out.index.data();
    T* value = out.value.data();
    for (; mask != 0; mask &= mask - 1, ++count) {
      const std::size_t i = begin + static_cast<std::size_t>(std::countr_zero(mask));
      index[count] = static_cast<std::uint32_t>(i);
      value[count] = x[i];
    }
  }
  return count;
}

// What to send: keys above `least`, and the first `ties` of those equal to it.
template <typename K>
struct Cut {
  K least;
  std::size_t ties;
};

// Where the k largest end among the first `count` >= k candidates.
template <typename T>
Cut<Key<T>> find_cut(const TopkScratch<T>& from, std::size_t count, std::size_t k, Key<T> high,
                     std::vector<Key<T>>& band) {
  const auto keys_below = [&](Key<T> limit) {
    band.resize(count);
    std::size_t below = 0;
    for (std::size_t i = 0; i < count; ++i) {  // writes always, keeps what is below
      band[below] = key_of(from.value[i]);
      below += band[below] < limit ? 1 : 0;
    }
    band.resize(below);
    return count - below;
  };
  std::size_t sure = keys_below(high);
  if (sure > k) sure = keys_below(~Key<T>{0});
  if (sure == k) return {static_cast<Key<T>>(high - 1), 0};
  const std::size_t wanted = k - sure;  // of the band
  const auto nth = band.begin() + static_cast<std::ptrdiff_t>(wanted - 1);
  std::nth_element(band.begin(), nth, band.end(), std::greater<>());
  const Key<T> least = *nth;
  const auto above = std::count_if(band.begin(), nth, [least](Key<T> key) { return key > least; });
  return {least, wanted - static_cast<std::size_t>(above)};
}

// Writes pairs (index_at(i), value[i]) until k are sent.
template <typename T, typename IndexAt>
void emit(std::span<const T> value, const IndexAt& index_at, Cut<Key<T>> cut, std::size_t k,
          ByteSpan payload) {
  std::byte* indices = payload.data();
  std::byte* values = indices + k * kTopkIndexBytes;
  std::size_t sent = 0;
  for (std::size_t i = 0; i < value.size() && sent < k; ++i) {
    const Key<T> key = key_of(value[i]);
    if (key < cut.least) continue;
    if (key == cut.least) {
      if (cut.ties == 0) continue;
      --cut.ties;
    }
    store_le<std::uint32_t>(indices, index_at(i), sent);
    store_le<T>(values, value[i], sent);
    ++sent;
  }
}

constexpr std::size_t kSpan = 8192;  // elements of dst that stay in the nearest cache

}  // namespace

template <typename T>
void topk_encode(std::span<const T> x, std::size_t k, TopkScratch<T>& scratch, ByteSpan payload) {
  Bounds<Key<T>> bounds = sample_bounds(x, k, scratch.keys);
  std::size_t count = collect(x, bounds.low, scratch);
  if (count < k && bounds.low > 1) count = collect(x, bounds.low = 1, scratch);
  if (count < k) {  // zeros are needed to make up k: the first of them
    emit(
        x, [](std::size_t i) { return static_cast<std::uint32_t>(i); }, Cut<Key<T>>{0, k - count},
        k, payload);
    return;
  }
  const Cut<Key<T>> cut = find_cut(scratch, count, k, bounds.high, scratch.keys);
  emit(
      std::span<const T>(scratch.value).first(count),
      [&scratch](std::size_t i) { return scratch.index[i]; }, cut, k, payload);
}

Status topk_check_indices(ConstByteSpan payload, std::size_t k, std::size_t elems) {
  std::size_t least = 0;
  for (std::size_t i = 0; i < k; ++i) {
    const std::size_t index = load_le<std::uint32_t>(payload.data(), i);
    if (index < least || index >= elems) {
      return {Code::kCorruptPayload, format("topk: index %zu at place %zu (from %zu to %zu wanted)",
                                            index, i, least, elems - 1)};
    }
    least = index + 1;
  }
  return {};
}

template <typename T>
void topk_decode(std::span<const ConstByteSpan> payloads, std::size_t k, T factor,
                 std::span<T> dst) {
  std::vector<std::size_t> next(payloads.size(), 0);
  for (std::size_t begin = 0; begin < dst.size(); begin += kSpan) {
    const std::size_t end = std::min(dst.size(), begin + kSpan);
    std::fill(dst.begin() + static_cast<std::ptrdiff_t>(begin),
              dst.begin() + static_cast<std::ptrdiff_t>(end), T{0});
    bool touched = false;
    for (std::size_t r = 0; r < payloads.size(); ++r) {
      const std::byte* indices = payloads[r].data();
      const std::byte* values = indices + k * kTopkIndexBytes;
      for (std::size_t& i = next[r]; i < k; ++i) {
        const std::size_t index = load_le<std::uint32_t>(indices, i);
        if (index >= end) break;
        dst[index] += load_le<T>(values, i);
        touched = true;
      }
    }
    if (!touched || factor == T{1}) continue;
    for (std::size_t i = begin; i < end; ++i) dst[i] *= factor;
  }
}

template void topk_encode<float>(std::span<const float>, std::size_t, TopkScratch<float>&,
                                 ByteSpan);
template void topk_encode<double>(std::span<const double>, std::size_t, TopkScratch<double>&,
                                  ByteSpan);
template void topk_decode<float>(std::span<const ConstByteSpan>, std::size_t, float,
                                 std::span<float>);
template void topk_decode<double>(std::span<const ConstByteSpan>, std::size_t, double,
                                  std::span<double>);

}  // namespace gradwire::cpu
