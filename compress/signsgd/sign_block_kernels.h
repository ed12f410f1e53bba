// signsgd's fast kernels. The format adds up |p| in sixteen chains, so sixteen threads of a block
// walk a bucket in shared memory, while the others make its signs.
#pragma once

#include "compress/signsgd/sign_thread_kernels.h"

namespace gradwire::cuda {

inline constexpr std::int64_t kSignChunk = 4096;  // elements that a block holds

struct SignChunk {
  // p[0, count) of the source's elements from `begin` on, by `threads` threads of which this is
  // number `thread`. With `packed`, floats begin at 16 bytes there.
  GW_DEVICE static void read(const Source& source, std::int64_t begin, std::int64_t count,
                             bool packed, unsigned thread, unsigned threads, float* p) {
    using Four = Pack<float, 4>;
    const std::int64_t fours = packed ? count / 4 : 0;
    for (std::int64_t q = thread; q < fours; q += threads) {
      Four x = reinterpret_cast<const Four*>(source.grad + begin)[q];
      if (source.residual != nullptr) {
        const Four e = reinterpret_cast<const Four*>(source.residual + begin)[q];
        for (int j = 0; j < 4; ++j) x.at[j] += e.at[j];
      }
      reinterpret_cast<Four*>(p)[q] = x;
    }
    for (std::int64_t i = 4 * fours + thread; i < count; i += threads) {
      p[i] = source.at(begin + i);
    }
  }
  // sum + |p[chain]| + |p[chain + 16]| + ...
  GW_DEVICE static double add(const float* p, std::int64_t count, unsigned chain, double sum) {
    for (std::int64_t i = chain; i < count; i += kSignSums) sum += magnitude_of_element(p[i]);
    return sum;
  }
  GW_DEVICE static float mean(const double* sums, std::int64_t count) {
    double sum = 0;
    for (int j = 0; j < kSignSums; ++j) sum += sums[j];
    return static_cast<float>(sum / static_cast<double>(count));
  }
};

// Scale, signs and what error feedback keeps of buckets of 8, 16, ... kSignChunk elements, or of
// one shorter bucket: a block each, memory read once. 4 bytes an element in and 1/8 out; with error
// feedback 8 in, and 4 more out.
struct SignBlocks {
  static constexpr unsigned kThreads = 256;
  struct alignas(16) Shared {
    float p[kSignChunk];
    double sums[kSignSums];
  };
  using Four = Pack<float, 4>;

  Source source;
  std::int64_t bucket;
  std::byte* scales;
  std::byte* bits;
  std::uint64_t* verdict;
  bool floats_packed;  // of every bucket at 16 bytes
  bool bits_in_words;  // and its signs at 4

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::int64_t buckets = (source.count + bucket - 1) / bucket;
    for (std::int64_t b = block.block(); b < buckets; b += block.blocks()) {
      const std::int64_t begin = b * bucket;
      const std::int64_t count = source.count - begin < bucket ? source.count - begin : bucket;
      SignChunk::read(source, begin, count, floats_packed, block.thread(), kThreads, shared.p);
      block.barrier();
      if (block.thread() < kSignSums) {
        shared.sums[block.thread()] = SignChunk::add(shared.p, count, block.thread(), 0);
      }
      put_signs(block, shared.p, count, bits + begin / 8);
      block.barrier();
      const float scale = SignChunk::mean(shared.sums, count);
      if (block.thread() == 0) {
        store_float(scales, b, scale);
        if (!is_finite(scale)) {
          block.least(verdict, word_of(static_cast<std::uint64_t>(begin), kSignNotFinite));
        }
      }
      if (source.next != nullptr) {
        keep(block.thread(), shared.p, count, scale * source.own_scale, source.next + begin);
      }
      block.barrier();
    }
  }

  // A warp makes 32 signs at a time.
  template <class Block>
  GW_DEVICE void put_signs(Block& block, const float* p, std::int64_t count, std::byte* to) const {
    for (std::int64_t first = 32 * block.warp(); first < count; first += kThreads) {
      const std::int64_t i = first + block.lane();
      const std::uint32_t word = block.ballot(i < count && p[i < count ? i : 0] < 0);
      if (block.lane() != 0) continue;
      const std::int64_t rest = count - first;
      if (bits_in_words && rest >= 32) {
        *reinterpret_cast<std::uint32_t*>(to + first / 8) = word;
      } else {
        store_bytes(to + first / 8, word, rest >= 32 ? 4 : static_cast<int>((rest + 7) / 8));
      }
    }
  }

  // next = p - (-part or +part).
  GW_DEVICE void keep(unsigned thread, const float* p, std::int64_t count, float part,
                      float* next) const {
    const std::int64_t fours = floats_packed ? count / 4 : 0;
    for (std::int64_t q = thread; q < fours; q += kThreads) {
      Four x = reinterpret_cast<const Four*>(p)[q];
      for (int j = 0; j < 4; ++j) x.at[j] -= x.at[j] < 0 ? -part : part;
      reinterpret_cast<Four*>(next)[q] = x;
    }
    for (std::int64_t i = 4 * fours + thread; i < count; i += kThreads) {
      next[i] = p[i] - (p[i] < 0 ? -part : part);
    }
  }
};

// Scales of longer buckets, a whole tensor's too: a block each, whose first warp adds up one chunk
// while the others read the next. What the sixteen chains take one after another bounds its speed:
// a tensor under one scale is slow on a device, however large.
struct SignSums {
  static constexpr unsigned kThreads = 256;
  struct alignas(16) Shared {
    float p[2][kSignChunk];
    double sums[kSignSums];
  };

  Source source;
  std::int64_t bucket;
  std::byte* scales;
  std::uint64_t* verdict;
  bool floats_packed;  // of every bucket at 16 bytes

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::int64_t b = block.block();
    const std::int64_t begin = b * bucket;
    const std::int64_t count = source.count - begin < bucket ? source.count - begin : bucket;
    const std::int64_t chunks = (count + kSignChunk - 1) / kSignChunk;
    const unsigned thread = block.thread();
    const auto read = [&](std::int64_t c, unsigned place, unsigned threads) {
      const std::int64_t rest = count - c * kSignChunk;
      SignChunk::read(source, begin + c * kSignChunk, rest < kSignChunk ? rest : kSignChunk,
                      floats_packed, place, threads, shared.p[c % 2]);
    };
    read(0, thread, kThreads);
    block.barrier();
    double sum = 0;
    for (std::int64_t c = 0; c < chunks; ++c) {
      if (thread >= 32 && c + 1 < chunks) read(c + 1, thread - 32, kThreads - 32);
      if (thread < kSignSums) {
        const std::int64_t rest = count - c * kSignChunk;
        sum = SignChunk::add(shared.p[c % 2], rest < kSignChunk ? rest : kSignChunk, thread, sum);
      }
      block.barrier();
    }
    if (thread < kSignSums) shared.sums[thread] = sum;
    block.barrier();
    if (thread != 0) return;
    const float scale = SignChunk::mean(shared.sums, count);
    store_float(scales, b, scale);
    if (!is_finite(scale)) {
      block.least(verdict, word_of(static_cast<std::uint64_t>(begin), kSignNotFinite));
    }
  }
};

}  // namespace gradwire::cuda
