// The randomised Hadamard transform of compress/hadamard.h on a device: the host's bits. Its
// sums of two are made pair by pair, over 1, 2, 4 ... elements, so that any order of the pairs of a
// stage gives them.
#pragma once

#include <algorithm>

#include "base/philox.h"
#include "compress/cuda/bucket_places.h"
#include "compress/cuda/slices.h"

namespace gradwire::cuda {

inline constexpr std::int64_t kHadamardTile = 4096;  // elements that a block holds

// Of elements that are transformed together: BucketPlaces with digits.
struct HadamardPlaces {
  BucketPlaces places;
  RandomStream signs;
  std::uint64_t first;  // element of the tensor

  static HadamardPlaces of(std::int64_t elems, std::int64_t block, std::uint64_t seed,
                           std::uint64_t tensor, int stage, std::uint64_t step,
                           std::uint64_t first) {
    return {{elems, block, true},
            {seed, RandomUse::kHadamardSigns, tensor, kSharedRank, stage, step},
            first};
  }
  // How many elements are transformed with element i.
  constexpr std::int64_t size_of(std::int64_t i) const {
    return i < places.whole() * places.bucket ? places.bucket : places.count(places.of(i));
  }
  constexpr std::uint32_t sign_of(std::int64_t i) const {
    const std::uint64_t e = first + static_cast<std::uint64_t>(i);
    return signs.word(e / 32) >> (e % 32) << 31;
  }
  // 1/sqrt(size), size a power of two.
  static constexpr float factor(std::int64_t size) {
    const auto log2 =
        static_cast<std::uint32_t>(std::countr_zero(static_cast<std::uint64_t>(size)));
    const float root = log2 % 2 == 0 ? 1.0f : std::bit_cast<float>(0x3f3504f3u);
    return root * std::bit_cast<float>((127 - log2 / 2) << 23);
  }
};

constexpr float with_sign(float x, std::uint32_t sign) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) ^ sign);
}

// The stages within tiles of elements: a block each. Coded says of an element whether its block is
// transformed; those that are not are left where they are (in place, then).
template <class Coded>
struct HadamardTiles {
  static constexpr unsigned kThreads = 256;
  struct Shared {
    float x[kHadamardTile];
    std::uint32_t signs[kHadamardTile / 32 + 8];
  };

  Source source;
  float* to;
  HadamardPlaces at;
  bool inverse;
  Coded coded;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::int64_t begin = block.block() * kHadamardTile;
    const std::int64_t rest = source.count - begin;
    const auto count = static_cast<int>(rest < kHadamardTile ? rest : kHadamardTile);
    const bool even = begin + count <= at.places.whole() * at.places.bucket;
    const auto thread = static_cast<int>(block.thread());
    // Signs of 128 elements are one block of the stream's.
    const std::uint64_t aligned = (at.first + static_cast<std::uint64_t>(begin)) / 128;
    if (thread < kHadamardTile / 128 + 1) {
      const auto words = at.signs.block(aligned + static_cast<std::uint64_t>(thread));
      for (int j = 0; j < 4; ++j) shared.signs[4 * thread + j] = words[static_cast<unsigned>(j)];
    }
    block.barrier();
    const auto skip =
        static_cast<int>(at.first + static_cast<std::uint64_t>(begin) - 128 * aligned);
    const auto sign = [&](int i) {
      return shared.signs[(skip + i) / 32] >> ((skip + i) % 32) << 31;
    };
    const float factor = HadamardPlaces::factor(at.places.bucket);
    for (int i = thread; i < count; i += static_cast<int>(kThreads)) {
      const float x = source.at(begin + i);
      const float by = even ? factor : HadamardPlaces::factor(at.size_of(begin + i));
      shared.x[i] = (inverse ? x : with_sign(x, sign(i))) * by;
    }
    block.barrier();
    stages(block, begin, count, even, shared.x);
    const bool ends = inverse && at.places.bucket <= kHadamardTile;
    for (int i = thread; i < count; i += static_cast<int>(kThreads)) {
      if (!coded(begin + i)) continue;
      const bool flips = ends || (inverse && at.size_of(begin + i) <= kHadamardTile);
      to[begin + i] = flips ? with_sign(shared.x[i], sign(i)) : shared.x[i];
    }
  }

  template <class Block>
  GW_DEVICE void stages(Block& block, std::int64_t begin, int count, bool even, float* x) const {
    const std::int64_t most = at.places.bucket < kHadamardTile ? at.places.bucket : kHadamardTile;
    for (int half = 1; half < most; half *= 2) {
      for (int q = static_cast<int>(block.thread()); q < kHadamardTile / 2;
           q += static_cast<int>(kThreads)) {
        const int j = q / half * 2 * half + q % half;
        if (j + half >= count || (!even && half >= at.size_of(begin + j))) continue;
        const float a = x[j];
        const float b = x[j + half];
        x[j] = a + b;
        x[j + half] = a - b;
      }
      block.barrier();
    }
  }
};

// A stage over `half` >= kHadamardTile elements: a pair a thread.
template <class Coded>
struct HadamardStage {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  float* x;
  HadamardPlaces at;
  std::int64_t half;
  bool flips;  // the last stage of an inverse: signs of those that it ends
  Coded coded;

  std::int64_t pairs() const { return blocks_for(at.places.elems, 2 * half) * half; }

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t q = block.block() * kThreads + block.thread();
    const std::int64_t j = q / half * 2 * half + q % half;
    if (j + half >= at.places.elems) return;
    const std::int64_t size = at.size_of(j);
    if (half >= size || !coded(j)) return;
    const float a = x[j];
    const float b = x[j + half];
    const bool last = flips && 2 * half == size;
    x[j] = last ? with_sign(a + b, at.sign_of(j)) : a + b;
    x[j + half] = last ? with_sign(a - b, at.sign_of(j + half)) : a - b;
  }
};

struct AllCoded {
  constexpr bool operator()(std::int64_t) const { return true; }
};

// Enqueues to = the transform of the source (or takes it back); `to` may be the source's gradient
// where it has no residual.
template <class Coded>
Status put_hadamard(const char* name, const Source& source, float* to, const HadamardPlaces& at,
                    bool inverse, const Coded& coded, const Stream& stream) {
  GW_TRY(launch(name, HadamardTiles<Coded>{source, to, at, inverse, coded},
                blocks_for(source.count, kHadamardTile), stream));
  for (std::int64_t half = kHadamardTile; half < std::min(at.places.bucket, source.count);
       half *= 2) {
    const HadamardStage<Coded> stage{to, at, half, inverse, coded};
    GW_TRY(launch(name, stage, blocks_for(stage.pairs(), HadamardStage<Coded>::kThreads), stream));
  }
  return {};
}

}  // namespace gradwire::cuda
