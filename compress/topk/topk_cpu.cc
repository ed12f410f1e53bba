// Exact selection in one pass: a small stratified sample bounds the k-th largest magnitude from
// below and above, the pass collects what lies above the lower bound (about 1.2 k elements in order
// of index), and only those between the bounds are narrowed down to the k-th itself. The sample
// decides speed alone: when it misleads, the pass runs again with all non-zero elements.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/philox.h"
#include "base/text.h"
#include "compress/little_endian.h"
#include "compress/simd/line_writer.h"
#include "compress/topk/topk_kernels.h"
#include "compress/topk/topk_loops.h"

namespace gradwire::cpu {
namespace {

template <typename T>
using Key = TopkKey<T>;
template <typename T>
constexpr Key<T> kTop = ~Key<T>{0} >> 1;  // no key is larger

constexpr std::size_t kSampleMost = 32768;
constexpr std::size_t kSampleLeast = 1024;
constexpr double kSigmas = 4;  // how far the bounds stand from the sample's estimate

template <typename K>
struct Bounds {
  K low;   // the k-th largest key is at least this, or the sample misled
  K high;  // and below this, or the sample misled
};

template <typename T>
Bounds<Key<T>> sample_bounds(const Corrected<T>& x, std::size_t k, std::vector<Key<T>>& keys) {
  Bounds<Key<T>> bounds{1, kTop<T>};
  const std::size_t samples = std::clamp(x.size / 64, kSampleLeast, kSampleMost);
  if (x.size < 2 * samples) return bounds;
  const std::size_t stride = x.size / samples;
  keys.resize(samples);
  for (std::size_t s = 0; s < samples; ++s) {
    keys[s] = topk_key(x[s * stride + mix64(s) % stride]);
  }
  const double rank =
      static_cast<double>(k) * static_cast<double>(samples) / static_cast<double>(x.size);
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

// What to send: keys above `least`, and the first `ties` of those equal to it.
template <typename K>
struct Cut {
  K least;
  std::size_t ties;
  bool all_ties;  // there are no more of those
};

constexpr std::size_t kBand = 4096;  // keys that are partitioned rather than counted again

// Where the k largest end among the first `count` >= k candidates, whose keys are at least 1.
template <typename T>
Cut<Key<T>> find_cut(const TopkScratch<T>& from, std::size_t count, std::size_t k,
                     Bounds<Key<T>> bounds, std::vector<Key<T>>& band) {
  const auto at_least = [&](Key<T> low) {
    return TopkLoops<T>::kCountAtLeast(from.value.data(), count, low);
  };
  std::size_t at_low = count;
  std::size_t at_high = at_least(bounds.high);
  if (at_high >= k && bounds.high < kTop<T>) {
    bounds = {bounds.high, kTop<T>};
    at_low = at_high;
    at_high = at_least(bounds.high);
  }
  if (at_high >= k) return {kTop<T>, k, at_high == k};
  while (at_low - at_high > kBand && bounds.high - bounds.low > 1) {
    const Key<T> middle = bounds.low + (bounds.high - bounds.low) / 2;
    const std::size_t at_middle = at_least(middle);
    (at_middle >= k ? bounds.low : bounds.high) = middle;
    (at_middle >= k ? at_low : at_high) = at_middle;
  }
  band.resize(at_low - at_high + kSlack);
  band.resize(
      TopkLoops<T>::kKeysBetween(from.value.data(), count, bounds.low, bounds.high, band.data()));
  const std::size_t wanted = k - at_high;  // of the band
  const auto nth = band.begin() + static_cast<std::ptrdiff_t>(wanted - 1);
  std::nth_element(band.begin(), nth, band.end(), std::greater<>());
  const Key<T> least = *nth;
  const auto above = std::count_if(band.begin(), nth, [least](Key<T> key) { return key > least; });
  const std::size_t ties = wanted - static_cast<std::size_t>(above);
  return {least, ties, at_least(least) == k};
}

// Writes pairs (index_at(i), value[i]) until k are sent.
template <typename T, typename Values, typename IndexAt>
void emit(const Values& value, std::size_t count, const IndexAt& index_at, Cut<Key<T>> cut,
          std::size_t k, ByteSpan payload) {
  std::byte* indices = payload.data();
  std::byte* values = indices + k * kTopkIndexBytes;
  std::size_t sent = 0;
  for (std::size_t i = 0; i < count && sent < k; ++i) {
    const T each = value[i];
    const Key<T> key = topk_key(each);
    if (key < cut.least) continue;
    if (key == cut.least) {
      if (cut.ties == 0) continue;
      --cut.ties;
    }
    store_le<std::uint32_t>(indices, index_at(i), sent);
    store_le<T>(values, each, sent);
    ++sent;
  }
}

// Puts back what the cut leaves of the candidates.
template <typename T>
void restore(const TopkScratch<T>& from, std::size_t count, Cut<Key<T>> cut, T* next) {
  for (std::size_t i = 0; i < count; ++i) {
    const Key<T> key = topk_key(from.value[i]);
    if (key > cut.least) continue;
    if (key == cut.least && cut.ties > 0) {
      --cut.ties;
    } else {
      next[from.index[i]] = from.value[i];
    }
  }
}

}  // namespace

template <typename T>
std::size_t topk_collect(const Corrected<T>& x, TopkKey<T> low, TopkScratch<T>& out, T* next,
                         T own_scale) {
  constexpr std::size_t kRun = LineWriter::kRoom / sizeof(T);
  LineWriter rest(reinterpret_cast<std::byte*>(next), next == nullptr ? 0 : x.size * sizeof(T));
  std::size_t count = 0;
  for (std::size_t begin = 0; begin < x.size; begin += kRun) {
    const Corrected<T> run = x.part(begin, std::min(kRun, x.size - begin));
    if (out.index.size() < count + kRun + kSlack) {
      out.index.resize(2 * (count + kRun + kSlack));
      out.value.resize(out.index.size());
    }
    T* const left = next == nullptr ? nullptr : reinterpret_cast<T*>(rest.room());
    std::uint32_t* index = out.index.data() + count;
    T* value = out.value.data() + count;
    const std::size_t found =
        TopkLoops<T>::kCollect(run, low, static_cast<std::uint32_t>(begin), index, left);
    for (std::size_t j = 0; j < found; ++j) {
      const std::size_t i = index[j] - begin;
      value[j] = run[i];
      if (left != nullptr) left[i] = topk_rest(value[j], own_scale);
    }
    count += found;
    if (left != nullptr) rest.commit(run.size * sizeof(T));
  }
  rest.finish();
  return count;
}

template <typename T>
bool topk_encode(const Corrected<T>& x, T* next, T own_scale, std::size_t k,
                 TopkScratch<T>& scratch, ByteSpan payload) {
  Bounds<Key<T>> bounds = sample_bounds(x, k, scratch.keys);
  std::size_t count = topk_collect(x, bounds.low, scratch, next, own_scale);
  if (count < k && bounds.low > 1) {
    bounds = {1, kTop<T>};
    count = topk_collect(x, bounds.low, scratch, next, own_scale);
  }
  const T* const values = scratch.value.data();
  const bool finite =
      TopkLoops<T>::kCountAtLeast(values, count, topk_key(std::numeric_limits<T>::infinity())) == 0;
  if (next != nullptr && !finite) return false;
  if (count < k) {  // zeros are needed to make up k: the first of them, which leave themselves
    emit<T>(
        x, x.size, [](std::size_t i) { return static_cast<std::uint32_t>(i); },
        Cut<Key<T>>{0, k - count, false}, k, payload);
    return finite;
  }
  const Cut<Key<T>> cut = find_cut(scratch, count, k, bounds, scratch.keys);
  if (cut.all_ties) {
    TopkLoops<T>::kWriteAtLeast(values, scratch.index.data(), count, cut.least, k, payload.data(),
                                payload.data() + k * kTopkIndexBytes);
  } else {
    emit<T>(
        values, count, [&scratch](std::size_t i) { return scratch.index[i]; }, cut, k, payload);
  }
  if (next != nullptr) restore(scratch, count, cut, next);
  return finite;
}

Status topk_check_indices(ConstByteSpan payload, std::size_t k, std::size_t elems) {
  std::size_t least = 0;
  for (std::size_t i = 0; i < k; ++i) {
    const std::size_t index = load_le<std::uint32_t>(payload.data(), i);
    if (index < least || index >= elems) {
      return {Code::kCorruptPayload, format("index %zu at place %zu (expected from %zu to %zu)",
                                            index, i, least, elems - 1)};
    }
    least = index + 1;
  }
  return {};
}

template <typename T>
void topk_decode(std::span<const ConstByteSpan> payloads, T factor, std::span<T> dst) {
  constexpr std::size_t kRun = LineWriter::kRoom / sizeof(T);
  LineWriter to(reinterpret_cast<std::byte*>(dst.data()), dst.size_bytes());
  std::vector<std::size_t> next(payloads.size(), 0);
  for (std::size_t begin = 0; begin < dst.size(); begin += kRun) {
    const std::size_t count = std::min(kRun, dst.size() - begin);
    T* const run = reinterpret_cast<T*>(to.room());
    std::fill_n(run, count, T{0});
    bool touched = false;
    for (std::size_t r = 0; r < payloads.size(); ++r) {
      const std::size_t k = payloads[r].size() / (kTopkIndexBytes + sizeof(T));
      const std::byte* indices = payloads[r].data();
      const std::byte* values = indices + k * kTopkIndexBytes;
      for (std::size_t& i = next[r]; i < k; ++i) {
        const std::size_t index = load_le<std::uint32_t>(indices, i);
        if (index >= begin + count) break;
        run[index - begin] += load_le<T>(values, i);
        touched = true;
      }
    }
    if (touched && factor != T{1}) {
      for (std::size_t i = 0; i < count; ++i) run[i] *= factor;
    }
    to.commit(count * sizeof(T));
  }
  to.finish();
}

#define GW_TOPK_KERNELS(T)                                                                       \
  template bool topk_encode(const Corrected<T>&, T*, T, std::size_t, TopkScratch<T>&, ByteSpan); \
  template std::size_t topk_collect(const Corrected<T>&, TopkKey<T>, TopkScratch<T>&, T*, T);    \
  template void topk_decode(std::span<const ConstByteSpan>, T, std::span<T>)
GW_TOPK_KERNELS(float);
GW_TOPK_KERNELS(double);
#undef GW_TOPK_KERNELS

}  // namespace gradwire::cpu
