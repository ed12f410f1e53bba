// One pass over memory: a bucket's norm, its draws, its codes and what they leave for error
// feedback are computed while it lies in the nearest cache.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/text.h"
#include "compress/qsgd/qsgd_buckets.h"

namespace gradwire::cpu {
namespace {

// x is not empty.
void encode_reading_ahead(const QsgdGrid& grid, std::span<const float> x, AheadWriter& writer) {
  std::span<const float> bucket = x.first(std::min(grid.bucket, x.size()));
  float largest = largest_magnitude(Corrected<float>(bucket));
  while (!bucket.empty()) {
    x = x.subspan(bucket.size());
    const std::span<const float> next = x.first(std::min(grid.bucket, x.size()));
    largest = writer.bucket(bucket, largest, [&](const QsgdRounding& rounding) {
      return simd::round_reading(grid, rounding, next);
    });
    bucket = next;
  }
  writer.finish();
}

}  // namespace

template <typename T>
Status qsgd_encode(const QsgdGrid& grid, const RandomStream& draws, std::uint64_t first,
                   const Corrected<T>& p, T* next, T own_scale, ByteSpan wire) {
  static_assert(kQsgdChunk * sizeof(T) <= LineWriter::kRoom);
  const std::size_t norms = qsgd_norm_bytes(grid, p.size);
  if constexpr (std::is_same_v<T, float>) {
    if (next == nullptr && p.residual == nullptr && reads_ahead(grid)) {
      AheadWriter writer(grid, draws, first, wire, norms);
      encode_reading_ahead(grid, {p.grad, p.size}, writer);
      return {};
    }
  }
  CodeWriter writer(grid.bits, wire.subspan(norms));
  LineWriter rest(reinterpret_cast<std::byte*>(next), next == nullptr ? 0 : p.size * sizeof(T));
  ByteDither dither(draws);
  for (std::size_t begin = 0, b = 0; begin < p.size; begin += grid.bucket, ++b) {
    const Corrected<T> bucket = p.part(begin, std::min(grid.bucket, p.size - begin));
    const float norm = norm_of<T>(grid, bucket);
    if (next != nullptr && std::isnan(norm)) {
      return {Code::kInvalidArgument,
              format("qsgd: the norm of bucket %zu, from element %zu of the slice on, is not "
                     "finite in fp32 (error feedback needs it to be)",
                     b, begin)};
    }
    store_le<float>(wire.data(), norm, b);
    encode_bucket<T>(grid, norm, bucket, first + begin, dither, writer,
                     next == nullptr ? nullptr : &rest, own_scale);
  }
  writer.finish();
  rest.finish();
  return {};
}

template <typename T>
Status qsgd_decode(const QsgdGrid& grid, ConstByteSpan wire, bool add, std::span<T> dst) {
  BucketReader<T> reader(grid, wire, dst.size());
  LineWriter to(reinterpret_cast<std::byte*>(dst.data()), add ? 0 : dst.size_bytes());
  for (std::size_t begin = 0; begin < dst.size(); begin += grid.bucket) {
    const std::span<T> bucket = dst.subspan(begin, std::min(grid.bucket, dst.size() - begin));
    GW_TRY(reader.next_bucket());
    for (std::size_t at = 0; at < bucket.size(); at += kQsgdChunk) {
      const std::span<T> chunk = bucket.subspan(at, std::min(kQsgdChunk, bucket.size() - at));
      if (add) {
        GW_TRY(reader.expand(true, chunk));
      } else {
        GW_TRY(reader.expand(false, {reinterpret_cast<T*>(to.room()), chunk.size()}));
        to.commit(chunk.size_bytes());
      }
    }
  }
  to.finish();
  return reader.finish();
}

#define GW_QSGD_KERNELS(T)                                                         \
  template Status qsgd_encode(const QsgdGrid&, const RandomStream&, std::uint64_t, \
                              const Corrected<T>&, T*, T, ByteSpan);               \
  template Status qsgd_decode(const QsgdGrid&, ConstByteSpan, bool, std::span<T>)
GW_QSGD_KERNELS(float);
GW_QSGD_KERNELS(double);
#undef GW_QSGD_KERNELS

}  // namespace gradwire::cpu
