// Sums of payloads and values, coded again: sums live in the nearest cache alone.
#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/text.h"
#include "compress/uniform/uniform_decode.h"
#include "compress/uniform/uniform_encoder.h"

namespace gradwire {
namespace {

// Sums of a bucket each, but for the last addition, which is done while the bucket before is
// coded. Of two addends or more, on a grid of which reads_ahead() holds, in codes of 8
// bits.
class SumsAhead {
 public:
  // What is left to do of a sum: an addition, or to look at it.
  struct Rest {
    bool adds = false;
    cpu::UniformSum addition;
    std::span<const float> sum;
  };

  SumsAhead(const UniformKernel& kernel, std::span<const KernelAddend<float>> addends)
      : kernel_(kernel), addends_(addends.begin(), addends.end()) {
    // a + b is b + a, and values need no place of their own when they come first.
    swapped_ = addends_[0].values == nullptr && addends_[1].values != nullptr;
    if (swapped_) std::swap(addends_[0], addends_[1]);
  }

  Result<Rest> start(std::size_t begin, std::span<float> sum) const {
    const float* onto = nullptr;
    for (std::size_t a = 0; a < addends_.size(); ++a) {
      if (addends_[a].values != nullptr) {
        onto = with_values(addends_[a].values + begin, onto, sum);
        continue;
      }
      const std::byte* const from = addends_[a].wire.data() + kernel_.bytes(begin, sizeof(float));
      const auto meaning = read_uniform_meaning<float>(kernel_.grid, from, sum.size());
      if (!meaning.has_value()) return named(meaning.error(), a);
      const cpu::UniformSum addition{
          meaning.value(),
          reinterpret_cast<const std::uint8_t*>(from) + uniform_head_bytes(kernel_.grid, 4), onto,
          sum};
      if (a + 1 == addends_.size()) return Rest{.adds = true, .addition = addition, .sum = sum};
      const std::uint8_t code =
          cpu::simd::expand(addition.meaning, addition.codes, addition.onto, sum);
      GW_TRY(named(check_uniform_code(kernel_.grid, code), a));
      onto = sum.data();
    }
    return Rest{.adds = false, .addition = {}, .sum = sum};
  }
  // After the last addition, of whose codes `code` is the largest.
  Status finish(std::uint8_t code) const {
    return named(check_uniform_code(kernel_.grid, code), addends_.size() - 1);
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

  const UniformKernel& kernel_;
  std::vector<KernelAddend<float>> addends_;
  bool swapped_ = false;
};

Status fold_reading_ahead(const UniformKernel& kernel, std::span<const KernelAddend<float>> addends,
                          std::size_t elems, ByteSpan wire) {
  AheadEncoder encoder(kernel.grid);
  const SumsAhead sums(kernel, addends);
  BucketWriter to(kernel.grid, sizeof(float), wire);
  std::array<std::array<float, kUniformChunk>, 2> memory;
  std::span<const float> bucket;
  float largest = 0;
  for (std::size_t begin = 0, b = 0; begin < elems || !bucket.empty(); ++b) {
    const std::size_t count = std::min(kernel.grid.bucket, elems - begin);
    SumsAhead::Rest next;
    if (count > 0) {
      GW_ASSIGN(next, sums.start(begin, std::span(memory[b % 2]).first(count)));
    }
    const auto seen = encoder.bucket(
        bucket, largest, to.room(), [&next](const AheadEncoder::Turn& turn) -> cpu::UniformSeen {
          if (next.adds) {
            return cpu::simd::round_nearest_adding(turn.place, turn.x, turn.codes, next.addition);
          }
          const float most =
              cpu::simd::round_nearest_reading(turn.place, turn.x, turn.codes, next.sum);
          return {.magnitude = std::bit_cast<std::uint32_t>(most), .code = 0};
        });
    GW_TRY(sums.finish(seen.code));
    to.commit(kernel.bytes(bucket.size(), sizeof(float)));
    largest = std::bit_cast<float>(seen.magnitude);
    bucket = next.sum;
    begin += count;
  }
  to.finish();
  return {};
}

}  // namespace

template <typename T>
Status UniformKernel::fold(const SliceKey& key, std::span<const KernelAddend<T>> addends,
                           std::size_t elems, ByteSpan wire) const {
  if constexpr (std::is_same_v<T, float>) {
    if (reads_ahead(grid) && grid.bits == 8 && addends.size() > 1) {
      return fold_reading_ahead(*this, addends, elems, wire);
    }
  }
  Encoder<T> encoder(grid, key);
  BucketWriter to(grid, sizeof(T), wire);
  std::vector<HadamardSigns> signs;
  for (const KernelAddend<T>& addend : addends) signs.emplace_back(addend.key);
  std::vector<T> sums(std::min(grid.bucket, elems));
  std::vector<T> aside(sums.size());
  std::size_t offset = 0;
  for (std::size_t begin = 0; begin < elems; begin += grid.bucket) {
    const std::span<T> sum = std::span(sums).first(std::min(grid.bucket, elems - begin));
    for (std::size_t a = 0; a < addends.size(); ++a) {
      const T* const values = addends[a].values;
      if (values == nullptr) {
        const Status status =
            decode_uniform_bucket<T>(grid, grid.hadamard ? &signs[a] : nullptr, begin,
                                     addends[a].wire.data() + offset, a > 0, sum, aside);
        if (!status.ok()) return status.with_context(format("addend %zu", a));
        continue;
      }
      fetch_ahead(values + begin, sum.size());
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] = a > 0 ? sum[i] + values[begin + i] : values[begin + i];
      }
    }
    encoder.bucket(begin, sum, to.room());
    const std::size_t length = bytes(sum.size(), sizeof(T));
    to.commit(length);
    offset += length;
  }
  to.finish();
  return {};
}

template Status UniformKernel::fold<float>(const SliceKey&, std::span<const KernelAddend<float>>,
                                           std::size_t, ByteSpan) const;
template Status UniformKernel::fold<double>(const SliceKey&, std::span<const KernelAddend<double>>,
                                            std::size_t, ByteSpan) const;

}  // namespace gradwire
