// The fast encoding of methods with a sign an element, and means for each bucket that signs stand
// for (chain_sums.h): a block for each bucket, memory read once. Sixteen threads walk the chains in
// shared memory while the others make the signs. 4 bytes an element in and 1/8 out; with error
// feedback 8 in, and 4 more out.
#pragma once

#include "compress/cuda/chain_sums.h"

namespace gradwire::cuda {

// Of buckets of up to kChainChunk elements. Beside what chain_sums.h asks for, Means has
//   std::byte* signs(std::byte* wire, std::int64_t bucket) const    where a bucket's begin
//   static float value(const Head&, bool minus)
template <class Means>
struct SignBlocks {
  static constexpr unsigned kThreads = 256;
  struct alignas(16) Shared {
    float p[kChainChunk];
    typename Means::Sums chains[kChains];
  };
  using Four = Pack<float, 4>;

  Source source;
  Means means;
  std::byte* wire;
  std::uint64_t* verdict;
  bool floats_packed;  // of every bucket at 16 bytes
  bool bits_in_words;  // and its signs at 4

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::int64_t buckets = means.places.number();
    for (std::int64_t b = block.block(); b < buckets; b += block.blocks()) {
      const std::int64_t begin = means.places.begin(b);
      const auto count = static_cast<int>(means.places.begin(b + 1) - begin);
      ChainChunk::read(source, begin, count, floats_packed, block.thread(), kThreads, shared.p);
      block.barrier();
      if (block.thread() < kChains) {
        typename Means::Sums mine = {};
        for (int i = static_cast<int>(block.thread()); i < count; i += kChains) {
          mine.see(shared.p[i]);
        }
        shared.chains[block.thread()] = mine;
      }
      put_signs(block, shared.p, count, means.signs(wire, b));
      block.barrier();
      const auto head = means.head_of(Means::fold(shared.chains), count);
      if (block.thread() == 0) put_head(block, means, head, b, wire, verdict);
      if (source.next != nullptr) {
        keep(block.thread(), shared.p, count, Means::value(head, false) * source.own_scale,
             Means::value(head, true) * source.own_scale, source.next + begin);
      }
      block.barrier();
    }
  }

  // A warp makes 32 signs at a time.
  template <class Block>
  GW_DEVICE void put_signs(Block& block, const float* p, int count, std::byte* to) const {
    for (int first = 32 * static_cast<int>(block.warp()); first < count;
         first += static_cast<int>(kThreads)) {
      const int i = first + static_cast<int>(block.lane());
      const std::uint32_t word = block.ballot(i < count && p[i < count ? i : 0] < 0);
      if (block.lane() != 0) continue;
      if (bits_in_words && count - first >= 32) {
        *reinterpret_cast<std::uint32_t*>(to + first / 8) = word;
      } else {
        store_bytes(to + first / 8, word, count - first >= 32 ? 4 : (count - first + 7) / 8);
      }
    }
  }

  GW_DEVICE void keep(unsigned thread, const float* p, int count, float plus, float minus,
                      float* next) const {
    const int fours = floats_packed ? count / 4 : 0;
    for (int q = static_cast<int>(thread); q < fours; q += static_cast<int>(kThreads)) {
      Four x = reinterpret_cast<const Four*>(p)[q];
      for (int j = 0; j < 4; ++j) x.at[j] -= x.at[j] < 0 ? minus : plus;
      reinterpret_cast<Four*>(next)[q] = x;
    }
    for (int i = 4 * fours + static_cast<int>(thread); i < count; i += static_cast<int>(kThreads)) {
      next[i] = p[i] - (p[i] < 0 ? minus : plus);
    }
  }
};

}  // namespace gradwire::cuda
