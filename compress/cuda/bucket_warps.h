// The fast encoding of methods with buckets (bucket_grid.h), which reads memory once: a warp for
// each bucket, sixteen elements to a lane. The head is the warp's, elements stay in registers, and
// codes and what error feedback keeps leave together. Memory: 4 bytes an element in and bits/8
// out; with error feedback 8 in, and 4 more out.
#pragma once

#include "compress/cuda/bucket_grid.h"
#include "compress/cuda/lanes.h"
#include "compress/cuda/sixteen.h"

namespace gradwire::cuda {

inline constexpr std::int64_t kWarpBucket = 32 * kSixteen;

// A bucket of each warp, for chains that run across lanes.
struct BucketsShared {
  float p[8][kWarpBucket];
};

// Of buckets of 16, 32, ... 512 elements; where draws are made, they begin at a multiple of 8 of
// the tensor.
template <class Grid>
struct BucketWarps {
  static constexpr unsigned kThreads = 256;
  static constexpr std::int64_t kWarps = kThreads / 32;
  using Shared = std::conditional_t<Grid::kGuards, BucketsShared, NothingShared>;

  Source source;
  Grid grid;
  RandomStream draws;
  std::uint64_t first;
  std::byte* wire;
  std::uint64_t* verdict;
  bool floats_packed;   // all floats begin at 16 bytes
  bool codes_in_words;  // and every bucket's bytes at 4

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::int64_t buckets = (source.count + grid.bucket - 1) / grid.bucket;
    for (std::int64_t b = block.block() * kWarps + block.warp(); b < buckets;
         b += block.blocks() * kWarps) {
      one(block, shared, b);
    }
  }

  template <class Block>
  GW_DEVICE void one(Block& block, Shared& shared, std::int64_t b) const {
    const std::int64_t first_one = b * grid.bucket;
    const std::int64_t end =
        first_one + grid.bucket < source.count ? first_one + grid.bucket : source.count;
    const std::int64_t begin = first_one + kSixteen * block.lane();
    const int count = sixteen_or(begin, end);
    float p[kSixteen] = {};
    Sixteen::read(source, begin, count, floats_packed, p);
    typename Grid::Extent extent;
    for (int j = 0; j < kSixteen; ++j) {
      if (j < count) extent.see(p[j]);
    }
    extent.join(block);
    auto head = grid.head_of(extent);
    if constexpr (Grid::kGuards) {
      float* const own = shared.p[block.warp()];
      if (grid.guard && grid.coded(head) &&
          zeros_are_closer(block, head, end - first_one, count, p, own)) {
        head = {};
      }
    }
    std::byte* const to = wire + b * bucket_bytes(grid);
    if (block.lane() == 0) grid.store(head, to);
    if (count > 0) write(block, head, begin, count, to + Grid::kHeadBytes, p);
  }

  // Of all lanes' elements times `unit`, in an order that is not the chains': the same for all
  // lanes, since a sum of two is the same either way round.
  template <class Block>
  GW_DEVICE static float rough_squares(Block& block, float unit, const float* p) {
    float sum = 0;
    for (int j = 0; j < kSixteen; ++j) sum += p[j] * unit * (p[j] * unit);
    for (unsigned step = 16; step > 0; step /= 2) {
      sum += from_lane(block, sum, block.lane() ^ step);
    }
    return sum;
  }

  // Most buckets are far from that, which a rough sum shows; else sixteen lanes walk the chains,
  // from `own` memory of the warp. All lanes get the answer.
  template <class Block, class Head>
  GW_DEVICE bool zeros_are_closer(Block& block, const Head& head, std::int64_t size, int count,
                                  const float* p, float* own) const {
    const auto meaning = grid.meaning_of(head);
    if (grid.plainly(meaning, size, rough_squares(block, grid.unit(meaning), p))) return false;
    for (int j = 0; j < kSixteen; ++j) {
      if (j < count) own[kSixteen * block.lane() + j] = p[j];
    }
    block.warp_barrier();
    const auto coding = grid.coding_of(head);
    double squares = 0;
    double excess = 0;
    if (block.lane() < kGuardSums) {
      for (std::int64_t i = block.lane(); i < size; i += kGuardSums) {
        const float x = own[i];
        squares += static_cast<double>(x) * static_cast<double>(x);
        excess += grid.excess(meaning, x, grid.code(coding, x, 0));
      }
    }
    for (unsigned half = kGuardSums / 2; half > 0; half /= 2) {
      squares += from_lane(block, squares, block.lane() + half);
    }
    squares = from_lane(block, squares, 0);
    double sum = 0;
    for (unsigned j = 0; j < kGuardSums; ++j) sum += from_lane(block, excess, j);
    block.warp_barrier();  // before the next bucket is put there
    return !grid.surely(meaning, size, squares) && sum > 0;
  }
  template <class Block, class Head>
  GW_DEVICE void write(Block& block, const Head& head, std::int64_t begin, int count,
                       std::byte* codes, float* p) const {
    std::uint64_t packed[2] = {0, 0};  // eight codes each
    const bool coded = grid.coded(head);
    const auto coding = grid.coding_of(head);
    const auto meaning = grid.meaning_of(head);
    const std::uint64_t block_of_draws = (first + static_cast<std::uint64_t>(begin)) / 8;
    std::array<std::uint32_t, 4> words[2] = {};
    if (grid.draws && coded) {
      words[0] = draws.block(block_of_draws);
      words[1] = draws.block(block_of_draws + 1);
    }
    std::uint32_t largest = 0;
    for (int j = 0; j < kSixteen; ++j) {
      const unsigned draw = half_word(words[j / 8], static_cast<unsigned>(j % 8));
      const unsigned code = coded && j < count ? grid.code(coding, p[j], draw) : 0;
      packed[j / 8] |= static_cast<std::uint64_t>(code) << (j % 8 * grid.bits);
      p[j] = p[j] - grid.value(meaning, code) * source.own_scale;
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(p[j]) & 0x7fffffffu;
      largest = j < count && bits > largest ? bits : largest;
    }
    const int within = kSixteen * static_cast<int>(block.lane());
    Sixteen::store_codes(codes + within / 8 * grid.bits, packed, grid.bits, count, codes_in_words);
    if (source.next == nullptr) return;
    Sixteen::write(source.next + begin, count, floats_packed, p);
    if (largest >= 0x7f800000u) {
      block.least(verdict, word_of(static_cast<std::uint64_t>(begin), kBucketNotFinite));
    }
  }
};

}  // namespace gradwire::cuda
