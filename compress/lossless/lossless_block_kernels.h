// lossless's kernels: a warp for each block, sixteen elements to a lane.
//
// Blocks have the lengths that their elements need. An encoder finds those first, adds them up, and
// then writes. A reader hears where a block begins from the head of the one before: one thread
// walks from head to head, in chunks of the payload that the other warps of its block bring to
// shared memory.
#pragma once

#include "compress/cuda/block_scan.h"
#include "compress/cuda/sixteen.h"
#include "compress/lossless/lossless_plan.h"
#include "compress/sparse/select_kernels.h"

namespace gradwire::cuda {

static_assert(kLosslessBlock == 32 * kSixteen);
inline constexpr auto kLosslessElems = static_cast<std::int64_t>(kLosslessBlock);

// What they find: of reading at rank << 32 | block, of writing at an element.
enum LosslessFinding : unsigned {
  kLosslessNotFinite = 1,
  kLosslessShort = 2,  // it ends early, or bytes follow
  kLosslessHeadBad = 3,
  kLosslessCodes = 4  // codes that belong to no exponents, or bits behind them
};

// The head of a block that is not raw, and of raw ones kRaw.
struct LosslessBlockHead {
  static constexpr unsigned kRaw = 15;
  unsigned width;
  unsigned omitted;
  unsigned base;
  unsigned escapes;

  static constexpr LosslessBlockHead load(const std::byte* from) {
    const auto first = static_cast<unsigned>(from[0]);
    if (first == kLosslessRaw) return {kRaw, 0, 0, 0};
    return {first % 16, first / 16, static_cast<unsigned>(from[1]),
            static_cast<unsigned>(load_bytes(from + 2, 2))};
  }
  constexpr bool sound() const {
    return width == kRaw ||
           (width <= kMostCodeBits && omitted <= LosslessLayout<float>::kPlanes + 1 &&
            (width > 0 || escapes == 0));
  }
  constexpr std::int64_t bytes(std::int64_t count) const {
    const auto n = static_cast<std::size_t>(count);
    if (width == kRaw) return 1 + 4 * count;
    return static_cast<std::int64_t>(kLosslessHead<float> + lossless_code_bytes(n, width) +
                                     (width > 0 ? escapes : 0) +
                                     lossless_tail_bytes<float>(omitted, n));
  }
};

// A block's elements, and what a warp finds out about them.
struct LosslessLane {
  float p[kSixteen];
  int count;
  std::uint32_t base;  // of the block
  LosslessBlockHead head;
  std::int64_t bytes;

  constexpr std::uint32_t bits(int j) const { return std::bit_cast<std::uint32_t>(p[j]); }
  constexpr std::uint32_t exponent(int j) const { return bits(j) >> 23 & 0xffu; }

  template <class Block>
  GW_DEVICE static LosslessLane of(Block& block, const Source& source, std::int64_t begin,
                                   bool packed) {
    LosslessLane own{};
    const std::int64_t mine = begin + kSixteen * block.lane();
    const std::int64_t end =
        begin + kLosslessElems < source.count ? begin + kLosslessElems : source.count;
    own.count = sixteen_or(mine, end);
    Sixteen::read(source, mine, own.count, packed, own.p);
    std::uint32_t any = 0;
    for (int j = 0; j < kSixteen; ++j) {
      if (j >= own.count) continue;
      any |= own.bits(j);
      own.base = own.exponent(j) > own.base ? own.exponent(j) : own.base;
    }
    for (unsigned step = 16; step > 0; step /= 2) {
      any |= block.shuffle(any, block.lane() ^ step);
      const std::uint32_t other = block.shuffle(own.base, block.lane() ^ step);
      own.base = other > own.base ? other : own.base;
    }
    own.plan(block, any, end - begin);
    return own;
  }

  template <class Block>
  GW_DEVICE void plan(Block& block, std::uint32_t any, std::int64_t size) {
    // Two widths to a word: at most 512 each.
    std::uint32_t escapes[4] = {};
    for (int j = 0; j < kSixteen; ++j) {
      if (j >= count) continue;
      const std::uint32_t distance = base - exponent(j);
      for (unsigned w = 0; w < 8; ++w) {
        if (distance >= (2u << w) - 1) escapes[w / 2] += w % 2 == 0 ? 1u : 1u << 16;
      }
    }
    for (unsigned step = 16; step > 0; step /= 2) {
      for (int k = 0; k < 4; ++k) {
        escapes[k] += block.shuffle(escapes[k], block.lane() ^ step);
      }
    }
    const auto n = static_cast<std::size_t>(size);
    const LosslessPlan best =
        cheapest_plan<float>(n, lossless_omitted<float>(any), [&escapes](unsigned width) {
          std::uint32_t word = 0;
          for (unsigned k = 0; k < 4; ++k) word = (width - 1) / 2 == k ? escapes[k] : word;
          return static_cast<std::size_t>((width - 1) % 2 == 0 ? word & 0xffffu : word >> 16);
        });
    const bool raw = best.bytes >= 1 + 4 * n;
    head = {raw ? LosslessBlockHead::kRaw : best.width, best.omitted, base,
            static_cast<unsigned>(best.escapes)};
    bytes = raw ? 1 + 4 * size : static_cast<std::int64_t>(best.bytes);
  }
};

// The lengths of blocks. Memory: 4 bytes an element in; with a residual 8.
struct LosslessLengths {
  static constexpr unsigned kThreads = 256;
  static constexpr std::int64_t kWarps = kThreads / 32;
  using Shared = NothingShared;

  Source source;
  bool packed;
  std::uint32_t* lengths;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t b = block.block() * kWarps + block.warp();
    if (b * kLosslessElems >= source.count) return;
    const auto own = LosslessLane::of(block, source, b * kLosslessElems, packed);
    if (block.lane() == 0) lengths[b] = static_cast<std::uint32_t>(own.bytes);
  }
};

// Lengths become places, and the end. One block.
struct LosslessPlaces {
  static constexpr unsigned kThreads = 1024;
  using Shared = ScanShared<kThreads>;

  std::int64_t blocks;
  std::uint32_t* places;  // lengths, and room for one more

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::uint32_t all = sums_in_front(block, shared, places, blocks);
    if (block.thread() == 0) places[blocks] = all;
  }
};

// Writes blocks, and what error feedback keeps: a block is put together in shared memory, and
// leaves in words.
struct LosslessWrite {
  static constexpr unsigned kThreads = 256;
  static constexpr std::int64_t kWarps = kThreads / 32;
  static constexpr int kRoom = 2064;  // of a block's bytes, and what it lies beside a word
  struct alignas(16) Shared {
    std::byte image[kWarps][kRoom];
  };

  Source source;
  bool packed;
  const std::uint32_t* places;
  std::byte* wire;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::int64_t b = block.block() * kWarps + block.warp();
    const std::int64_t begin = b * kLosslessElems;
    if (begin >= source.count) return;
    LosslessLane own = LosslessLane::of(block, source, begin, packed);
    std::byte* const to = wire + places[b];
    const auto beside = static_cast<int>(reinterpret_cast<std::uintptr_t>(to) % 4);
    std::byte* const image = shared.image[block.warp()];
    const std::int64_t rest = source.count - begin;
    compose(block, own, rest < kLosslessElems ? rest : kLosslessElems, image + beside);
    block.warp_barrier();
    const auto end = beside + static_cast<int>(own.bytes);
    std::byte* const first = to - beside;  // at a word
    for (int w = static_cast<int>(block.lane()); 4 * w < end; w += 32) {
      if (4 * w >= beside && 4 * w + 4 <= end) {
        reinterpret_cast<std::uint32_t*>(first)[w] =
            reinterpret_cast<const std::uint32_t*>(image)[w];
        continue;
      }
      for (int i = 4 * w; i < 4 * w + 4; ++i) {
        if (i >= beside && i < end) first[i] = image[i];
      }
    }
    if (source.next != nullptr) keep(block, own, begin + kSixteen * block.lane());
  }

  template <class Block>
  GW_DEVICE void compose(Block& block, const LosslessLane& own, std::int64_t size,
                         std::byte* to) const {
    const auto lane = static_cast<int>(block.lane());
    const LosslessBlockHead& head = own.head;
    if (head.width == LosslessBlockHead::kRaw) {
      if (lane == 0) to[0] = std::byte{kLosslessRaw};
      for (int j = 0; j < kSixteen; ++j) {
        if (j < own.count) store_word(to + 1, kSixteen * lane + j, own.bits(j));
      }
      return;
    }
    if (lane == 0) {
      to[0] = static_cast<std::byte>(head.width + 16 * head.omitted);
      to[1] = static_cast<std::byte>(head.base);
      store_bytes(to + 2, head.escapes, 2);
    }
    std::byte* at = to + kLosslessHead<float>;
    if (head.width > 0) {
      put_codes(block, own, at);
      at += lossless_code_bytes(static_cast<std::size_t>(size), head.width) + head.escapes;
    }
    // Tops, and the bytes of mantissa below them, as far as they travel.
    for (unsigned row = 0; row < 3; ++row) {
      if (head.omitted > 2 - row) break;
      for (int j = 0; j < kSixteen; ++j) {
        if (j >= own.count) continue;
        const std::uint32_t bits = own.bits(j);
        const std::uint32_t byte =
            row == 0 ? (bits >> 31 << 7) | (bits >> 16 & 0x7fu) : bits >> (row == 1 ? 8 : 0);
        at[kSixteen * lane + j] = static_cast<std::byte>(byte & 0xffu);
      }
      at += size;
    }
  }

  template <class Block>
  GW_DEVICE void put_codes(Block& block, const LosslessLane& own, std::byte* to) const {
    const unsigned width = own.head.width;
    const std::uint32_t escape = (1u << width) - 1;
    std::uint64_t packed_codes[2] = {0, 0};  // eight each
    std::uint32_t escapes = 0;               // by element
    for (int j = 0; j < kSixteen; ++j) {
      if (j >= own.count) continue;
      const std::uint32_t distance = own.base - own.exponent(j);
      const std::uint32_t code = distance < escape ? distance : escape;
      packed_codes[j / 8] |= std::uint64_t{code} << (static_cast<unsigned>(j % 8) * width);
      escapes |= (code == escape ? 1u : 0u) << j;
    }
    Sixteen::store_codes(to + 2 * width * block.lane(), packed_codes, static_cast<int>(width),
                         own.count, false);
    std::uint32_t before = lanes_before(block, static_cast<std::uint32_t>(std::popcount(escapes)));
    const std::int64_t size = elements_of(block, own.count);
    std::byte* const exceptions = to + lossless_code_bytes(static_cast<std::size_t>(size), width);
    for (int j = 0; j < kSixteen; ++j) {
      if ((escapes >> j & 1u) != 0) exceptions[before++] = static_cast<std::byte>(own.exponent(j));
    }
  }

  // The sum over the lanes in front.
  template <class Block>
  GW_DEVICE static std::uint32_t lanes_before(Block& block, std::uint32_t mine) {
    std::uint32_t sum = mine;
    for (unsigned step = 1; step < 32; step *= 2) {
      const std::uint32_t other = block.shuffle(sum, (block.lane() + 32 - step) % 32);
      sum += block.lane() >= step ? other : 0;
    }
    return sum - mine;
  }
  template <class Block>
  GW_DEVICE static std::int64_t elements_of(Block& block, int count) {
    auto sum = static_cast<std::uint32_t>(count);
    for (unsigned step = 16; step > 0; step /= 2) sum += block.shuffle(sum, block.lane() ^ step);
    return sum;
  }

  template <class Block>
  GW_DEVICE void keep(Block& block, LosslessLane& own, std::int64_t begin) const {
    for (int j = 0; j < kSixteen; ++j) {
      own.p[j] = own.p[j] - own.p[j] * source.own_scale;
      if (j >= own.count || is_finite(own.p[j])) continue;
      block.least(verdict, word_of(static_cast<std::uint64_t>(begin + j), kLosslessNotFinite));
    }
    if (own.count > 0) Sixteen::write(source.next + begin, own.count, packed, own.p);
  }
};

}  // namespace gradwire::cuda
