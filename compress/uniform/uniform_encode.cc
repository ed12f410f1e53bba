#include <algorithm>
#include <type_traits>
#include <vector>

#include "base/text.h"
#include "compress/simd/line_writer.h"
#include "compress/simd/statistics.h"
#include "compress/uniform/uniform_decode.h"
#include "compress/uniform/uniform_encoder.h"

namespace gradwire {
namespace {

Status not_finite(std::size_t begin) {
  return {Code::kInvalidArgument,
          format("the bucket from element %zu of the slice on is not finite, or its scale does "
                 "not fit fp32 (error feedback needs both)",
                 begin)};
}

// x is not empty.
void encode_reading_ahead(const UniformKernel& kernel, std::span<const float> x, ByteSpan wire) {
  const std::size_t size = kernel.grid.bucket;
  AheadEncoder encoder(kernel.grid);
  BucketWriter to(kernel.grid, sizeof(float), wire);
  std::span<const float> bucket = x.first(std::min(size, x.size()));
  float largest = cpu::largest_magnitude(Corrected<float>(bucket));
  while (!bucket.empty()) {
    x = x.subspan(bucket.size());
    const std::span<const float> next = x.first(std::min(size, x.size()));
    largest = encoder.bucket(bucket, largest, to.room(), [next](const AheadEncoder::Turn& turn) {
      return cpu::simd::round_nearest_reading(turn.place, turn.x, turn.codes, next);
    });
    to.commit(kernel.bytes(bucket.size(), sizeof(float)));
    bucket = next;
  }
  to.finish();
}

// A bucket is coded, and what it leaves written, while the next one's sums are made. p is not
// empty.
Status settle_reading_ahead(const UniformKernel& kernel, const Corrected<float>& p, float* next,
                            float own_scale, ByteSpan wire) {
  const std::size_t size = kernel.grid.bucket;
  static_assert(kUniformChunk * sizeof(float) <= cpu::LineWriter::kRoom);
  AheadEncoder encoder(kernel.grid);
  BucketWriter to(kernel.grid, sizeof(float), wire);
  cpu::LineWriter rest(reinterpret_cast<std::byte*>(next), p.size * sizeof(float));
  std::array<std::array<float, kUniformChunk>, 2> sums;
  std::size_t count = std::min(size, p.size);
  float largest = cpu::simd::round_settling({}, p.part(0, count), sums[0].data());
  for (std::size_t begin = 0, b = 0; begin < p.size; ++b) {
    const std::span<const float> bucket = std::span(sums[b % 2]).first(count);
    if (!std::isfinite(largest)) return not_finite(begin);
    auto* const left = reinterpret_cast<float*>(rest.room());
    const std::size_t end = begin + count;
    count = std::min(size, p.size - end);
    const Corrected<float> after = p.part(end, count);
    bool settled = false;
    const float seen =
        encoder.bucket(bucket, largest, to.room(), [&](const AheadEncoder::Turn& turn) {
          settled = !turn.x.empty();
          return cpu::simd::round_settling(
              {turn.place, turn.meaning, turn.x, turn.codes, own_scale, left}, after,
              sums[(b + 1) % 2].data());
        });
    // Zeros alone, or what no grid reaches.
    if (!settled && largest != 0) return not_finite(begin);
    if (!settled) std::ranges::copy(bucket, left);
    largest = seen;
    to.commit(kernel.bytes(bucket.size(), sizeof(float)));
    rest.commit(bucket.size_bytes());
    begin = end;
  }
  to.finish();
  rest.finish();
  return {};
}

}  // namespace

template <typename T>
Status UniformKernel::encode(const SliceKey& key, std::span<const T> x, ByteSpan wire) const {
  if constexpr (std::is_same_v<T, float>) {
    if (reads_ahead(grid)) {
      encode_reading_ahead(*this, x, wire);
      return {};
    }
  }
  Encoder<T> encoder(grid, key);
  BucketWriter to(grid, sizeof(T), wire);
  for (std::size_t begin = 0; begin < x.size(); begin += grid.bucket) {
    const auto part = x.subspan(begin, std::min(grid.bucket, x.size() - begin));
    encoder.bucket(begin, part, to.room());
    to.commit(bytes(part.size(), sizeof(T)));
  }
  to.finish();
  return {};
}

template <typename T>
Status UniformKernel::encode_with_feedback(const SliceKey& key, const Corrected<T>& p, T* next,
                                           T own_scale, ByteSpan wire) const {
  if constexpr (std::is_same_v<T, float>) {
    if (reads_ahead(grid) && p.residual != nullptr && p.size > 0) {
      return settle_reading_ahead(*this, p, next, own_scale, wire);
    }
  }
  constexpr std::size_t kRun = cpu::LineWriter::kRoom / sizeof(T);
  Encoder<T> encoder(grid, key);
  BucketWriter to(grid, sizeof(T), wire);
  cpu::LineWriter rest(reinterpret_cast<std::byte*>(next), p.size * sizeof(T));
  std::vector<T> sums(std::min(grid.bucket, p.size));
  std::vector<T> own(sums.size());
  std::vector<T> aside(sums.size());
  for (std::size_t begin = 0; begin < p.size; begin += grid.bucket) {
    const std::size_t count = std::min(grid.bucket, p.size - begin);
    fetch_ahead(p.grad + begin, count);
    fetch_ahead(p.residual + begin, count);
    for (std::size_t i = 0; i < count; ++i) sums[i] = p.grad[begin + i] + p.residual[begin + i];
    const std::byte* const coded = to.room();
    if (!encoder.bucket(begin, std::span<const T>(sums).first(count), to.room())) {
      return not_finite(begin);
    }
    GW_TRY(decode_uniform_bucket<T>(grid, encoder.signs(), begin, coded, false,
                                    std::span(own).first(count), aside));
    to.commit(bytes(count, sizeof(T)));
    for (std::size_t at = 0; at < count; at += kRun) {
      const std::size_t run = std::min(kRun, count - at);
      T* const left = reinterpret_cast<T*>(rest.room());
      for (std::size_t i = 0; i < run; ++i) left[i] = sums[at + i] - own[at + i] * own_scale;
      rest.commit(run * sizeof(T));
    }
  }
  to.finish();
  rest.finish();
  return {};
}

#define GW_UNIFORM_ENCODE(T)                                                                       \
  template Status UniformKernel::encode<T>(const SliceKey&, std::span<const T>, ByteSpan) const;   \
  template Status UniformKernel::encode_with_feedback<T>(const SliceKey&, const Corrected<T>&, T*, \
                                                         T, ByteSpan) const
GW_UNIFORM_ENCODE(float);
GW_UNIFORM_ENCODE(double);
#undef GW_UNIFORM_ENCODE

}  // namespace gradwire
