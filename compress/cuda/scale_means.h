// A scale for each bucket, of its largest magnitude and the sum of its squares, for chain_sums.h:
// shared_scale/magnitudes.h on a device.
#pragma once

#include <cmath>

#include "compress/cuda/bucket_grid.h"
#include "compress/cuda/bucket_places.h"
#include "compress/cuda/chain_sums.h"
#include "compress/cuda/scale_of.h"
#include "compress/value_range.h"

namespace gradwire::cuda {

struct ScaleMeans {
  struct Head {
    float scale;           // the least fp32 that is not below it; the quiet NaN if there is none
    std::uint32_t finite;  // whether all elements are
  };
  struct Sums {
    double squares = 0;
    std::uint32_t most = 0;  // the largest magnitude, as bits
    std::uint32_t unused = 0;
    constexpr void see(float p) {
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(p) & 0x7fffffffu;
      most = bits > most ? bits : most;
      squares += static_cast<double>(p) * static_cast<double>(p);
    }
    constexpr void join(const Sums& other) {
      squares += other.squares;
      most = other.most > most ? other.most : most;
    }
    constexpr void widen(double by) { squares *= by; }
  };

  BucketPlaces places;
  ScaleOf of;
  double clip;
  bool must_be_finite;  // elements that are not are refused

  // In halves, as SquareSums of simd/statistics.h.
  GW_DEVICE static Sums fold(const Sums (&chains)[kChains]) {
    Sums sums[kChains];
    for (int j = 0; j < kChains; ++j) sums[j] = chains[j];
    for (int half = kChains / 2; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) sums[j].join(sums[j + half]);
    }
    return sums[0];
  }
  GW_DEVICE double value_of(const Sums& sums, std::int64_t count) const {
    const auto largest = static_cast<double>(std::bit_cast<float>(sums.most));
    if (of == ScaleOf::kLargest) return largest;
    if (of == ScaleOf::kClipped) {
      const double cut = clip * std::sqrt(sums.squares / static_cast<double>(count));
      return cut < largest ? cut : largest;
    }
    const double norm = std::sqrt(sums.squares);
    return of == ScaleOf::kNorm || largest < norm ? norm : largest;
  }
  GW_DEVICE Head head_of(const Sums& sums, std::int64_t count) const {
    const bool finite = sums.most < 0x7f800000u;
    const float scale = finite ? rounded_up(value_of(sums, count)) : 0;
    return {finite && is_finite(scale) ? scale : std::bit_cast<float>(kNaNScaleBits),
            finite ? 1u : 0u};
  }
  static constexpr bool same(const Head& a, const Head& b) {
    return std::bit_cast<std::uint32_t>(a.scale) == std::bit_cast<std::uint32_t>(b.scale);
  }
  constexpr bool finite(const Head& head) const { return !must_be_finite || head.finite != 0; }
  constexpr void store(const Head& head, std::byte* wire, std::int64_t b) const {
    store_float(wire, b, head.scale);
  }
};

// Scales that are the largest magnitudes, of buckets of up to kChainChunk elements: a warp each.
struct WarpScales {
  static constexpr unsigned kThreads = 256;
  static constexpr std::int64_t kWarps = kThreads / 32;
  using Shared = NothingShared;
  using Four = Pack<float, 4>;

  Source source;
  ScaleMeans means;
  std::byte* wire;
  std::uint64_t* verdict;
  bool packed;  // floats of every bucket begin at 16 bytes

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t b = block.block() * kWarps + block.warp();
    if (b >= means.places.number()) return;
    const std::int64_t begin = means.places.begin(b);
    const auto count = static_cast<int>(means.places.begin(b + 1) - begin);
    Magnitude mine;
    const int fours = packed ? count / 4 : 0;
    for (int q = static_cast<int>(block.lane()); q < fours; q += 32) {
      Four x = reinterpret_cast<const Four*>(source.grad + begin)[q];
      if (source.residual != nullptr) {
        const Four e = reinterpret_cast<const Four*>(source.residual + begin)[q];
        for (int j = 0; j < 4; ++j) x.at[j] += e.at[j];
      }
      for (int j = 0; j < 4; ++j) mine.see(x.at[j]);
    }
    for (int i = 4 * fours + static_cast<int>(block.lane()); i < count; i += 32) {
      mine.see(source.at(begin + i));
    }
    mine.join(block);
    if (block.lane() != 0) return;
    put_head(block, means, means.head_of({0, mine.most, 0}, count), b, wire, verdict);
  }
};

// Enqueues the scales of all buckets, to the front of `wire`.
inline Status put_scales(const char* name, const Source& source, const ScaleMeans& means,
                         std::byte* wire, std::uint64_t* verdict, const Stream& stream) {
  if (means.of != ScaleOf::kLargest || means.places.bucket > kChainChunk) {
    return put_chain_heads(name, source, means, wire, verdict, stream);
  }
  const WarpScales kernel{source, means, wire, verdict, ChainChunk::packed(source, means.places)};
  return launch(name, kernel, blocks_for(means.places.number(), WarpScales::kWarps), stream);
}

}  // namespace gradwire::cuda
