// Sums over buckets in an order that the format fixes: sixteen chains, element i of the bucket in
// chain i % 16, added up in double. What is made of the sums is a bucket's head.
//
// A chain is a sequence, and a device is slow at those. So long buckets are added up in pieces, in
// any order, first. How far such a sum, of numbers that are not negative, can be from the chains'
// is known (Higham, "Accuracy and stability of numerical algorithms", section 4.2), and what is
// made of it is rounded to fp32: where the ends of that interval give one head it is the chains'
// head. Only of the others, some in a thousand, the chains are walked.
//
// What a method is to these kernels is a value Means, whose functions are constexpr:
//   BucketPlaces places                       of at least one element
//   Sums                                      trivially copyable; a default one is of nothing
//     void see(float p)                       adds an element
//     void join(const Sums&)                  adds the sums of other elements
//     void widen(double by)                   multiplies what was rounded
//   static Sums fold(const Sums (&chains)[16])
//   Head head_of(const Sums&, std::int64_t count) const    monotone in each sum
//   static bool same(const Head&, const Head&)             to the bit
//   bool finite(const Head&) const            false: elements are refused
//   void store(const Head&, std::byte* wire, std::int64_t bucket) const
#pragma once

#include <algorithm>

#include "compress/cuda/bucket_places.h"
#include "compress/cuda/lanes.h"
#include "compress/cuda/slices.h"

namespace gradwire::cuda {

inline constexpr int kChains = 16;
inline constexpr std::int64_t kChainChunk = 4096;  // elements that a block holds
inline constexpr std::int64_t kChainPiece = 16384;
inline constexpr unsigned kChainNotFinite = 1;  // what heads find, at a bucket's first element

struct ChainChunk {
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
  // Whether floats of every bucket begin at 16 bytes.
  static bool packed(const Source& source, const BucketPlaces& places) {
    const bool whole = places.rest() == 0 || !places.digits || places.rest() % 4 == 0;
    return (source.count <= places.bucket || places.bucket % 4 == 0) && whole &&
           starts_at(source.grad, 16) && starts_at(source.residual, 16) &&
           starts_at(source.next, 16);
  }
};

// Stores a head, and says where elements have none. One thread.
template <class Block, class Means>
GW_DEVICE void put_head(Block& block, const Means& means, const typename Means::Head& head,
                        std::int64_t b, std::byte* wire, std::uint64_t* verdict) {
  means.store(head, wire, b);
  if (means.finite(head)) return;
  block.least(verdict, word_of(static_cast<std::uint64_t>(means.places.begin(b)), kChainNotFinite));
}

// Heads by the chains themselves: a block for each bucket, whose first warp adds up one chunk while
// the others read the next.
template <class Means>
struct ChainHeads {
  static constexpr unsigned kThreads = 256;
  using Sums = typename Means::Sums;
  struct alignas(16) Shared {
    float p[2][kChainChunk];
    Sums chains[kChains];
  };

  Source source;
  Means means;
  const std::uint32_t* unsure;  // by bucket: 0, it has its head; null: none has
  std::byte* wire;
  std::uint64_t* verdict;
  bool packed;  // of every bucket at 16 bytes

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::int64_t b = block.block();
    if (unsure != nullptr && unsure[b] == 0) return;
    const std::int64_t begin = means.places.begin(b);
    const std::int64_t count = means.places.begin(b + 1) - begin;
    const std::int64_t chunks = (count + kChainChunk - 1) / kChainChunk;
    const unsigned thread = block.thread();
    const auto length = [&](std::int64_t c) {
      const std::int64_t rest = count - c * kChainChunk;
      return rest < kChainChunk ? rest : kChainChunk;
    };
    const auto read = [&](std::int64_t c, unsigned place, unsigned threads) {
      ChainChunk::read(source, begin + c * kChainChunk, length(c), packed, place, threads,
                       shared.p[c % 2]);
    };
    read(0, thread, kThreads);
    block.barrier();
    Sums mine = {};
    for (std::int64_t c = 0; c < chunks; ++c) {
      if (thread >= 32 && c + 1 < chunks) read(c + 1, thread - 32, kThreads - 32);
      if (thread < kChains) {
        const float* const p = shared.p[c % 2];
        const auto some = static_cast<int>(length(c));
        for (int i = static_cast<int>(thread); i < some; i += kChains) mine.see(p[i]);
      }
      block.barrier();
    }
    if (thread < kChains) shared.chains[thread] = mine;
    block.barrier();
    if (thread != 0) return;
    put_head(block, means, means.head_of(Means::fold(shared.chains), count), b, wire, verdict);
  }
};

// Sums of pieces of buckets, a block each. Memory: 4 bytes an element in; with a residual 8.
template <class Means>
struct PieceSums {
  static constexpr unsigned kThreads = 256;
  using Sums = typename Means::Sums;
  using Four = Pack<float, 4>;
  struct Shared {
    Sums warps[kThreads / 32];
  };

  Source source;
  Means means;
  std::int64_t pieces;  // of a bucket
  Sums* sums;
  bool packed;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::int64_t b = block.block() / pieces;
    const std::int64_t begin = means.places.begin(b) + block.block() % pieces * kChainPiece;
    std::int64_t end = means.places.begin(b + 1);
    end = begin + kChainPiece < end ? begin + kChainPiece : end;
    Sums mine = {};
    const std::int64_t fours = packed && end > begin ? (end - begin) / 4 : 0;
    for (std::int64_t q = block.thread(); q < fours; q += kThreads) {
      Four x = reinterpret_cast<const Four*>(source.grad + begin)[q];
      if (source.residual != nullptr) {
        const Four e = reinterpret_cast<const Four*>(source.residual + begin)[q];
        for (int j = 0; j < 4; ++j) x.at[j] += e.at[j];
      }
      for (int j = 0; j < 4; ++j) mine.see(x.at[j]);
    }
    for (std::int64_t i = begin + 4 * fours + block.thread(); i < end; i += kThreads) {
      mine.see(source.at(i));
    }
    mine = of_all_lanes(block, mine);
    if (block.lane() == 0) shared.warps[block.warp()] = mine;
    block.barrier();
    if (block.thread() != 0) return;
    for (unsigned w = 1; w < kThreads / 32; ++w) mine.join(shared.warps[w]);
    sums[block.block()] = mine;
  }
};

// Heads of buckets whose pieces are added up, where they are sure: a warp each.
template <class Means>
struct PieceHeads {
  static constexpr unsigned kThreads = 32;
  using Shared = NothingShared;
  using Sums = typename Means::Sums;

  Means means;
  std::int64_t pieces;
  const Sums* sums;
  std::uint32_t* unsure;
  std::byte* wire;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t b = block.block();
    Sums all = {};
    for (std::int64_t k = block.lane(); k < pieces; k += 32) all.join(sums[b * pieces + k]);
    all = of_all_lanes(block, all);
    if (block.lane() != 0) return;
    const std::int64_t count = means.places.count(b);
    // No element goes through more additions than that, there and here.
    const auto additions = static_cast<double>(
        count / kChains + kChainPiece / PieceSums<Means>::kThreads + pieces / 32 + 64);
    const double off = 1.25 * 0x1p-53 * additions;
    Sums most = all;
    all.widen(1 - off);
    most.widen(1 + off);
    const auto head = means.head_of(all, count);
    const bool sure = Means::same(head, means.head_of(most, count));
    unsure[b] = sure ? 0 : 1;
    if (sure) put_head(block, means, head, b, wire, verdict);
  }
};

// Enqueues the heads of all buckets. What is not finite is found at kChainNotFinite.
template <class Means>
Status put_chain_heads(const char* name, const Source& source, const Means& means, std::byte* wire,
                       std::uint64_t* verdict, const Stream& stream) {
  using Sums = typename Means::Sums;
  const std::int64_t buckets = means.places.number();
  const bool packed = ChainChunk::packed(source, means.places);
  if (means.places.bucket <= kChainChunk) {
    return launch(name, ChainHeads<Means>{source, means, nullptr, wire, verdict, packed}, buckets,
                  stream);
  }
  const std::int64_t pieces = blocks_for(std::min(means.places.bucket, source.count), kChainPiece);
  const std::size_t room = static_cast<std::size_t>(buckets * pieces) * sizeof(Sums);
  GW_ASSIGN(const Scratch scratch,
            Scratch::allocate(room + static_cast<std::size_t>(buckets) * 4, stream));
  auto* const sums = scratch.template as<Sums>();
  auto* const unsure = scratch.template as<std::uint32_t>(room);
  GW_TRY(launch(name, PieceSums<Means>{source, means, pieces, sums, packed}, buckets * pieces,
                stream));
  const PieceHeads<Means> heads{means, pieces, sums, unsure, wire, verdict};
  GW_TRY(launch(name, heads, buckets, stream));
  return launch(name, ChainHeads<Means>{source, means, unsure, wire, verdict, packed}, buckets,
                stream);
}

}  // namespace gradwire::cuda
