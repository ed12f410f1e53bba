// Sums of payloads and values, coded again: sums live in the nearest cache alone.
#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>
#include <utility>
#include <vector>

#include <hwy/cache_control.h>
#include "base/text.h"
#include "compress/qsgd/qsgd_buckets.h"

namespace gradwire::cpu {
namespace {

constexpr std::size_t kFoldAhead = 8192;  // bytes

template <typename T>
void fetch_ahead(const T* from, std::size_t count) {
  for (std::size_t i = 0; i < count * sizeof(T); i += 64) {
    hwy::Prefetch(reinterpret_cast<const std::byte*>(from) + i + kFoldAhead);
  }
}

// sum = or += an addend's next bucket, which stands at `begin`.
template <typename T>
Status add_bucket(const QsgdAddend<T>& addend, BucketReader<T>& reader, std::size_t begin, bool add,
                  std::span<T> sum) {
  if (addend.values != nullptr) {
    const T* from = addend.values + begin;
    fetch_ahead(from, sum.size());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = add ? sum[i] + from[i] : from[i];
    return {};
  }
  GW_TRY(reader.next_bucket());
  for (std::size_t at = 0; at < sum.size(); at += kQsgdChunk) {
    GW_TRY(reader.expand(add, sum.subspan(at, std::min(kQsgdChunk, sum.size() - at))));
  }
  return {};
}

// Sums of a bucket each, but for the last addition, which is done while the bucket before is
// coded. Of two addends or more, with codes of 8 bits on a grid of which reads_ahead() holds.
class SumsAhead {
 public:
  // What is left to do of a sum: an addition, or to look at it.
  struct Rest {
    bool adds = false;
    QsgdSum addition;
    std::span<const float> sum;
  };

  SumsAhead(const QsgdGrid& grid, std::span<const QsgdAddend<float>> addends, std::size_t elems)
      : grid_(grid),
        addends_(addends.begin(), addends.end()),
        no_norms_(qsgd_norm_bytes(grid, elems)) {
    // a + b is b + a, and values need no place of their own when they come first.
    swapped_ = addends_[0].values == nullptr && addends_[1].values != nullptr;
    if (swapped_) std::swap(addends_[0], addends_[1]);
    readers_.reserve(addends.size());
    for (const QsgdAddend<float>& addend : addends_) {
      readers_.emplace_back(grid, addend.values != nullptr ? ConstByteSpan(no_norms_) : addend.wire,
                            elems);
    }
  }

  // Buckets in order.
  Result<Rest> start(std::size_t begin, std::span<float> sum) {
    const float* onto = nullptr;
    for (std::size_t a = 0; a < addends_.size(); ++a) {
      if (addends_[a].values != nullptr) {
        onto = with_values(addends_[a].values + begin, onto, sum);
        continue;
      }
      GW_TRY(named(readers_[a].next_bucket(), a));
      const auto codes = readers_[a].codes(sum.size());
      if (!codes.has_value()) return named(codes.error(), a);
      const QsgdMagnitude<float> to = readers_[a].magnitude();
      const QsgdSum addition{to, codes.value(), onto, sum};
      if (a + 1 == addends_.size()) return Rest{.adds = true, .addition = addition, .sum = sum};
      if (onto == nullptr) {
        simd::expand(grid_, to, codes.value(), false, sum);
      } else {
        simd::round_adding(grid_, {}, addition);
      }
      onto = sum.data();
    }
    return Rest{.adds = false, .addition = {}, .sum = sum};
  }
  // After the last bucket.
  Status finish() const {
    for (std::size_t a = 0; a < addends_.size(); ++a) {
      if (addends_[a].values == nullptr) GW_TRY(named(readers_[a].finish(), a));
    }
    return {};
  }

 private:
  // Where the sum is now.
  static const float* with_values(const float* values, const float* onto, std::span<float> sum) {
    if (onto == nullptr) return values;
    fetch_ahead(values, sum.size());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = onto[i] + values[i];
    return sum.data();
  }
  Status named(const Status& status, std::size_t a) const {
    if (status.ok()) return status;
    return status.with_context(format("addend %zu", swapped_ && a < 2 ? 1 - a : a));
  }

  const QsgdGrid& grid_;
  std::vector<QsgdAddend<float>> addends_;
  std::vector<std::byte> no_norms_;  // of addends that are values
  std::vector<BucketReader<float>> readers_;
  bool swapped_ = false;
};

Status fold_reading_ahead(const QsgdGrid& grid, SumsAhead& sums, std::size_t elems,
                          AheadWriter& writer) {
  std::array<std::array<float, kQsgdChunk>, 2> memory;
  std::span<const float> bucket;
  float largest = 0;
  for (std::size_t begin = 0, b = 0; begin < elems || !bucket.empty(); ++b) {
    const std::size_t count = std::min(grid.bucket, elems - begin);
    SumsAhead::Rest next;
    if (count > 0) {
      GW_ASSIGN(next, sums.start(begin, std::span(memory[b % 2]).first(count)));
    }
    largest = writer.bucket(bucket, largest, [&](const QsgdRounding& rounding) {
      return next.adds ? simd::round_adding(grid, rounding, next.addition)
                       : simd::round_reading(grid, rounding, next.sum);
    });
    bucket = next.sum;
    begin += count;
  }
  writer.finish();
  return sums.finish();
}

}  // namespace

template <typename T>
Status qsgd_fold(const QsgdGrid& grid, const RandomStream& draws, std::uint64_t first,
                 std::span<const QsgdAddend<T>> addends, std::size_t elems, ByteSpan wire) {
  if constexpr (std::is_same_v<T, float>) {
    if (reads_ahead(grid) && grid.bits == 8 && addends.size() > 1) {
      SumsAhead sums(grid, addends, elems);
      AheadWriter writer(grid, draws, first, wire, qsgd_norm_bytes(grid, elems));
      return fold_reading_ahead(grid, sums, elems, writer);
    }
  }
  std::vector<BucketReader<T>> readers;
  readers.reserve(addends.size());
  const std::size_t norms = qsgd_norm_bytes(grid, elems);
  std::vector<std::byte> none(norms);
  for (const QsgdAddend<T>& addend : addends) {
    readers.emplace_back(grid, addend.values != nullptr ? ConstByteSpan(none) : addend.wire, elems);
  }
  CodeWriter writer(grid.bits, wire.subspan(norms));
  ByteDither dither(draws);
  std::vector<T> sum(std::min(grid.bucket, elems));
  const auto named = [](const Status& status, std::size_t a) {
    return status.ok() ? status : status.with_context(format("addend %zu", a));
  };
  for (std::size_t begin = 0, b = 0; begin < elems; begin += grid.bucket, ++b) {
    const std::span<T> bucket = std::span(sum).first(std::min(grid.bucket, elems - begin));
    for (std::size_t a = 0; a < addends.size(); ++a) {
      GW_TRY(named(add_bucket(addends[a], readers[a], begin, a > 0, bucket), a));
    }
    const Corrected<T> p{std::span<const T>(bucket)};
    const float norm = norm_of<T>(grid, p);
    store_le<float>(wire.data(), norm, b);
    encode_bucket<T>(grid, norm, p, first + begin, dither, writer, nullptr, T{1});
  }
  writer.finish();
  for (std::size_t a = 0; a < addends.size(); ++a) {
    if (addends[a].values == nullptr) GW_TRY(named(readers[a].finish(), a));
  }
  return {};
}

template Status qsgd_fold(const QsgdGrid&, const RandomStream&, std::uint64_t,
                          std::span<const QsgdAddend<float>>, std::size_t, ByteSpan);
template Status qsgd_fold(const QsgdGrid&, const RandomStream&, std::uint64_t,
                          std::span<const QsgdAddend<double>>, std::size_t, ByteSpan);

}  // namespace gradwire::cpu
