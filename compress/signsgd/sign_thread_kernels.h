// signsgd's plain kernels: a thread for each byte of signs whose scales are written. Right for
// every bucket and every beginning.
#pragma once

#include "compress/cuda/slices.h"

namespace gradwire::cuda {

// What kernels of signsgd find, at an element, a bucket or a rank.
enum SignFinding : unsigned {
  kSignNotFinite = 1,
  kSignScale = 2,
  kSignFreeBits = 3,
  kSignVote = 4
};

// Signs of elements, and what error feedback keeps where their scales are written: eight a thread.
struct SignBits {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  Source source;
  std::int64_t bucket;
  const std::byte* scales;  // null: there are none, and elements must be finite
  std::byte* bits;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t byte = block.block() * kThreads + block.thread();
    const std::int64_t begin = 8 * byte;
    if (begin >= source.count) return;
    unsigned signs = 0;
    bool finite = true;
    for (int j = 0; j < 8; ++j) {
      const std::int64_t i = begin + j;
      if (i >= source.count) continue;
      const float p = source.at(i);
      const bool minus = p < 0;
      signs |= (minus ? 1u : 0u) << j;
      finite = finite && is_finite(p);
      if (source.next == nullptr) continue;
      const float part = load_float(scales, i / bucket) * source.own_scale;
      source.next[i] = p - (minus ? -part : part);
    }
    bits[byte] = static_cast<std::byte>(signs);
    if (scales == nullptr && !finite) {
      block.least(verdict, word_of(static_cast<std::uint64_t>(begin), kSignNotFinite));
    }
  }
};

// dst = (add: +=) -scale or +scale: a byte of signs a thread.
struct SignValues {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;
  using Four = Pack<float, 4>;

  const std::byte* scales;  // null: 1
  const std::byte* bits;
  std::int64_t bucket;
  bool add;
  bool packed;  // dst begins at 16 bytes
  float* dst;
  std::int64_t count;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t byte = block.block() * kThreads + block.thread();
    const std::int64_t begin = 8 * byte;
    if (begin >= count) return;
    const auto signs = static_cast<unsigned>(bits[byte]);
    const int some = count - begin < 8 ? static_cast<int>(count - begin) : 8;
    if (signs >> some != 0) {
      block.least(verdict, word_of(static_cast<std::uint64_t>(begin), kSignFreeBits));
    }
    const bool whole = some == 8 && packed;
    for (int q = 0; q < 2; ++q) {
      Four value = {};
      if (add && whole) value = reinterpret_cast<const Four*>(dst + begin)[q];
      for (int j = 0; j < 4; ++j) {
        const std::int64_t i = begin + 4 * q + j;
        if (i >= count) continue;
        const float own = std::bit_cast<float>(scale_of(block, i) ^ signs >> (4 * q + j) << 31);
        if (whole) {
          value.at[j] = add ? value.at[j] + own : own;
        } else {
          dst[i] = add ? dst[i] + own : own;
        }
      }
      if (whole) reinterpret_cast<Four*>(dst + begin)[q] = value;
    }
  }

  // As bits.
  template <class Block>
  GW_DEVICE std::uint32_t scale_of(Block& block, std::int64_t i) const {
    if (scales == nullptr) return std::bit_cast<std::uint32_t>(1.0f);
    const std::uint32_t scale = load_word(scales, i / bucket);
    if (scale >= 0x7f800000u) {
      block.least(verdict, word_of(static_cast<std::uint64_t>(i / bucket), kSignScale));
    }
    return scale;
  }
};

// Two bits an element, 0 for 0, 1 for above, 2 for below: four a thread.
struct VoteBits {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  Source source;
  std::byte* votes;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t byte = block.block() * kThreads + block.thread();
    const std::int64_t begin = 4 * byte;
    if (begin >= source.count) return;
    unsigned packed = 0;
    for (int j = 0; j < 4; ++j) {
      if (begin + j >= source.count) continue;
      const float sum = source.at(begin + j);
      packed |= (sum > 0 ? 1u : sum < 0 ? 2u : 0u) << (2 * j);
      if (!is_finite(sum)) {
        block.least(verdict, word_of(static_cast<std::uint64_t>(begin + j), kSignNotFinite));
      }
    }
    votes[byte] = static_cast<std::byte>(packed);
  }
};

// dst = (add: +=) -1, 0 or +1: a byte of votes a thread.
struct VoteValues {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  const std::byte* votes;
  bool add;
  float* dst;
  std::int64_t count;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t byte = block.block() * kThreads + block.thread();
    const std::int64_t begin = 4 * byte;
    if (begin >= count) return;
    const auto packed = static_cast<unsigned>(votes[byte]);
    for (int j = 0; j < 4; ++j) {
      const unsigned code = packed >> (2 * j) & 3u;
      const std::int64_t i = begin + j;
      if (i >= count) {
        if (code != 0) block.least(verdict, word_of(static_cast<std::uint64_t>(i), kSignFreeBits));
        continue;
      }
      if (code == 3) block.least(verdict, word_of(static_cast<std::uint64_t>(i), kSignVote));
      const float value = code == 1 ? 1.0f : code == 2 ? -1.0f : 0.0f;
      dst[i] = add ? dst[i] + value : value;
    }
  }
};

inline constexpr std::int64_t kVoteBlock = 256;  // elements

// dst = the sign of the sum of some ranks' signs, or the sum itself, exact in fp32: eight elements
// a thread. As many ranks as a launch takes by value; further ones add to what is there.
struct VoteCount {
  static constexpr unsigned kThreads = 256;
  static constexpr int kMostPayloads = 64;
  using Shared = NothingShared;

  const std::byte* payloads[kMostPayloads];
  int number;
  int first;  // rank
  bool last;  // the signs of the sums are wanted
  // Of bits in front of the signs, one for each block of kVoteBlock elements that has no vote; 0:
  // all have.
  std::int64_t zero_bytes;
  float* dst;
  std::int64_t count;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t byte = block.block() * kThreads + block.thread();
    const std::int64_t begin = 8 * byte;
    if (begin >= count) return;
    const int some = count - begin < 8 ? static_cast<int>(count - begin) : 8;
    int minus[8] = {};
    int voters = 0;
    for (int r = 0; r < number; ++r) {
      const auto signs = static_cast<unsigned>(payloads[r][zero_bytes + byte]);
      if (signs >> some != 0 || (byte == 0 && !zeros_end_clear(payloads[r]))) {
        block.least(verdict, word_of(static_cast<std::uint64_t>(first + r), kSignFreeBits));
      }
      const std::int64_t b = begin / kVoteBlock;
      if (zero_bytes > 0 && (static_cast<unsigned>(payloads[r][b / 8]) >> (b % 8) & 1u) != 0) {
        continue;
      }
      ++voters;
      for (int j = 0; j < 8; ++j) minus[j] += static_cast<int>(signs >> j & 1u);
    }
    for (int j = 0; j < 8; ++j) {
      if (j >= some) continue;
      const float before = first == 0 ? 0.0f : dst[begin + j];
      const float sum = before + static_cast<float>(voters - 2 * minus[j]);
      dst[begin + j] = !last ? sum : sum > 0 ? 1.0f : sum < 0 ? -1.0f : 0.0f;
    }
  }

  // Whether the bits behind those of blocks are 0.
  GW_DEVICE bool zeros_end_clear(const std::byte* payload) const {
    const std::int64_t blocks = (count + kVoteBlock - 1) / kVoteBlock;
    return zero_bytes == 0 || blocks % 8 == 0 ||
           static_cast<unsigned>(payload[zero_bytes - 1]) >> (blocks % 8) == 0;
  }
};

}  // namespace gradwire::cuda
