// lossless's kernels that read: where blocks begin, and their elements.
#pragma once

#include "compress/lossless/lossless_block_kernels.h"

namespace gradwire::cuda {

constexpr std::uint64_t lossless_place(int rank, std::int64_t block) {
  return static_cast<std::uint64_t>(rank) << 32 | static_cast<std::uint64_t>(block);
}

// Places of blocks of some ranks' payloads, a block of threads each.
struct LosslessWalk {
  static constexpr unsigned kThreads = 256;
  static constexpr int kMostPayloads = 64;
  static constexpr std::int64_t kChunk = 16384;  // bytes
  static constexpr std::int64_t kHeadRoom = 4;   // a head may reach beyond
  struct Shared {
    std::byte bytes[2][kChunk + kHeadRoom];
  };

  const std::byte* payloads[kMostPayloads];
  std::int64_t lengths[kMostPayloads];
  int first;  // rank
  std::int64_t elems;
  std::int64_t blocks;
  std::uint32_t* places;  // of each rank's blocks
  std::uint32_t* sound;   // by rank: 1 where they are all there; 0 before
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const auto r = static_cast<int>(block.block());
    const std::int64_t length = lengths[r];
    const std::int64_t chunks = (length + kChunk - 1) / kChunk;
    const unsigned thread = block.thread();
    if (chunks > 0) bring(r, 0, thread, kThreads, shared.bytes[0]);
    block.barrier();
    std::int64_t at = 0;
    std::int64_t b = 0;
    unsigned wrong = 0;
    for (std::int64_t c = 0; c < chunks; ++c) {
      if (thread >= 32 && c + 1 < chunks) {
        bring(r, c + 1, thread - 32, kThreads - 32, shared.bytes[(c + 1) % 2]);
      }
      const std::int64_t end = (c + 1) * kChunk;
      if (thread == 0 && wrong == 0) {
        while (b < blocks && at < end && at < length && wrong == 0) {
          wrong = step(shared.bytes[c % 2] + (at - c * kChunk), length, r, b, at);
        }
      }
      block.barrier();
    }
    if (thread != 0) return;
    if (wrong == 0 && (b < blocks || at != length)) wrong = kLosslessShort;
    if (wrong == 0) {
      sound[first + r] = 1;
    } else {
      block.least(verdict, word_of(lossless_place(first + r, b), wrong));
    }
  }

  // Goes on to the next block; gives what is wrong.
  GW_DEVICE unsigned step(const std::byte* from, std::int64_t length, int r, std::int64_t& b,
                          std::int64_t& at) const {
    const bool raw = static_cast<unsigned>(from[0]) == kLosslessRaw;
    if (!raw && at + static_cast<std::int64_t>(kLosslessHead<float>) > length)
      return kLosslessShort;
    const auto head = LosslessBlockHead::load(from);
    if (!head.sound()) return kLosslessHeadBad;
    places[(first + r) * blocks + b] = static_cast<std::uint32_t>(at);
    const std::int64_t rest = elems - b * kLosslessElems;
    at += head.bytes(rest < kLosslessElems ? rest : kLosslessElems);
    if (at > length) return kLosslessShort;
    ++b;
    return 0;
  }

  GW_DEVICE void bring(int r, std::int64_t c, unsigned thread, unsigned threads,
                       std::byte* to) const {
    const std::int64_t begin = c * kChunk;
    const std::int64_t rest = lengths[r] - begin;
    const std::int64_t count = rest < kChunk + kHeadRoom ? rest : kChunk + kHeadRoom;
    for (std::int64_t i = thread; i < count; i += threads) to[i] = payloads[r][begin + i];
    for (std::int64_t i = count + thread; i < kChunk + kHeadRoom; i += threads) to[i] = {};
  }
};

// dst = or += a rank's elements: a warp for each block.
struct LosslessValues {
  static constexpr unsigned kThreads = 256;
  static constexpr std::int64_t kWarps = kThreads / 32;
  using Shared = NothingShared;

  const std::byte* payload;
  const std::uint32_t* places;
  const std::uint32_t* sound;
  int rank;
  bool add;
  bool packed;
  float* dst;
  std::int64_t elems;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    if (sound[rank] == 0) return;
    const std::int64_t b = block.block() * kWarps + block.warp();
    const std::int64_t begin = b * kLosslessElems;
    if (begin >= elems) return;
    const std::int64_t end = begin + kLosslessElems < elems ? begin + kLosslessElems : elems;
    const std::int64_t mine = begin + kSixteen * block.lane();
    const int count = sixteen_or(mine, end);
    const std::byte* const from = payload + places[b];
    const auto head = LosslessBlockHead::load(from);
    std::uint32_t bits[kSixteen] = {};
    if (head.width == LosslessBlockHead::kRaw) {
      for (int j = 0; j < kSixteen; ++j) {
        if (j < count) bits[j] = load_word(from + 1, kSixteen * block.lane() + j);
      }
    } else {
      if (!expand(block, head, from + kLosslessHead<float>, end - begin, count, bits)) {
        block.least(verdict, word_of(lossless_place(rank, b), kLosslessCodes));
      }
    }
    if (count > 0) put(mine, count, bits);
  }

  // False where codes belong to no exponents.
  template <class Block>
  GW_DEVICE bool expand(Block& block, const LosslessBlockHead& head, const std::byte* at,
                        std::int64_t size, int count, std::uint32_t* bits) const {
    const auto lane = static_cast<int>(block.lane());
    bool good = true;
    if (head.width == 0) {
      for (int j = 0; j < kSixteen; ++j) bits[j] = j < count ? head.base << 23 : 0;
    } else {
      good = read_codes(block, head, at, size, count, bits);
      at += lossless_code_bytes(static_cast<std::size_t>(size), head.width) + head.escapes;
    }
    for (unsigned row = 0; row < 3; ++row) {
      if (head.omitted > 2 - row) break;
      for (int j = 0; j < kSixteen; ++j) {
        if (j >= count) continue;
        const auto byte = static_cast<std::uint32_t>(at[kSixteen * lane + j]);
        bits[j] |= row == 0 ? (byte >> 7 << 31) | (byte & 0x7fu) << 16 : byte << (row == 1 ? 8 : 0);
      }
      at += size;
    }
    return good;
  }

  template <class Block>
  GW_DEVICE bool read_codes(Block& block, const LosslessBlockHead& head, const std::byte* codes,
                            std::int64_t size, int count, std::uint32_t* bits) const {
    const unsigned width = head.width;
    const std::uint32_t escape = (1u << width) - 1;
    const std::byte* const own = codes + 2 * width * block.lane();
    bool good = true;
    std::uint32_t escapes = 0;  // by element
    for (int half = 0; half < 2; ++half) {
      const int some = count - 8 * half < 8 ? count - 8 * half : 8;
      if (some <= 0) continue;
      const int used = some * static_cast<int>(width);
      const std::uint64_t folded = load_bytes(own + half * static_cast<int>(width), (used + 7) / 8);
      if (used % 8 != 0 && folded >> used != 0) good = false;
      for (int j = 0; j < 8; ++j) {
        if (j >= some) continue;
        const auto code =
            static_cast<std::uint32_t>(folded >> (static_cast<unsigned>(j) * width)) & escape;
        escapes |= (code == escape ? 1u : 0u) << (8 * half + j);
        if (code != escape && code > head.base) good = false;
        const std::uint32_t exponent = ((head.base - code) & 0xffu) << 23;
        for (int k = 0; k < kSixteen; ++k) bits[k] = k == 8 * half + j ? exponent : bits[k];
      }
    }
    const auto mine = static_cast<std::uint32_t>(std::popcount(escapes));
    const std::uint32_t before = LosslessWrite::lanes_before(block, mine);
    const std::uint32_t all = block.shuffle(before + mine, 31);
    if (all != head.escapes) return false;
    const std::byte* next =
        codes + lossless_code_bytes(static_cast<std::size_t>(size), width) + before;
    for (int j = 0; j < kSixteen; ++j) {
      if ((escapes >> j & 1u) != 0) bits[j] = static_cast<std::uint32_t>(*next++) << 23;
    }
    return good;
  }

  GW_DEVICE void put(std::int64_t begin, int count, const std::uint32_t* bits) const {
    float x[kSixteen] = {};
    if (add) Sixteen::read({.grad = dst, .count = elems}, begin, count, packed, x);
    for (int j = 0; j < kSixteen; ++j) {
      const float value = std::bit_cast<float>(bits[j]);
      x[j] = add ? x[j] + value : value;
    }
    Sixteen::write(dst + begin, count, packed, x);
  }
};

}  // namespace gradwire::cuda
