// qsgd's fast encoding, which reads memory once: a warp for each bucket, sixteen elements to a
// lane, which are the draws of one Philox block. The norm is the warp's, elements stay in
// registers, and codes and what error feedback keeps leave together. Memory: 4 bytes an element in
// and bits/8 out; with error feedback 8 in, and 4 more out.
#pragma once

#include <array>
#include <bit>

#include "compress/cuda/sixteen.h"
#include "compress/qsgd/qsgd_thread_kernels.h"

namespace gradwire::cuda {

// Of buckets of 16, 32, ... 512 elements that begin at a multiple of 16 of the tensor, under the
// L-infinity norm.
struct QsgdWarps {
  static constexpr unsigned kThreads = 256;
  static constexpr int kEach = kSixteen;  // elements of a lane
  using Shared = NothingShared;

  Source source;
  std::int64_t bucket;
  int levels;
  int bits;
  RandomStream draws;
  std::uint64_t first;
  std::byte* norms;
  std::byte* codes;
  std::uint64_t* verdict;
  bool floats_packed;   // all floats begin at 16 bytes
  bool codes_in_words;  // and the codes at 4

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    constexpr std::int64_t kWarps = kThreads / 32;
    const std::int64_t buckets = (source.count + bucket - 1) / bucket;
    for (std::int64_t b = block.block() * kWarps + block.warp(); b < buckets;
         b += block.blocks() * kWarps) {
      one(block, b);
    }
  }

  template <class Block>
  GW_DEVICE void one(Block& block, std::int64_t b) const {
    const std::int64_t end = (b + 1) * bucket < source.count ? (b + 1) * bucket : source.count;
    const std::int64_t begin = b * bucket + kEach * block.lane();
    const int count = sixteen_or(begin, end);
    float p[kEach] = {};
    Sixteen::read(source, begin, count, floats_packed, p);
    std::uint32_t largest = 0;
    for (int j = 0; j < kEach; ++j) {
      const std::uint32_t magnitude = magnitude_bits(p[j]);
      largest = magnitude > largest ? magnitude : largest;
    }
    for (unsigned step = 16; step > 0; step /= 2) {
      const std::uint32_t other = block.shuffle(largest, block.lane() ^ step);
      largest = other > largest ? other : largest;
    }
    const float norm = cpu::norm_that_travels(static_cast<double>(std::bit_cast<float>(largest)));
    if (block.lane() == 0) {
      store_float(norms, b, norm);
      if (source.next != nullptr && norm != norm) {
        block.least(verdict, word_of(static_cast<std::uint64_t>(b), kQsgdNotFinite));
      }
    }
    if (count > 0) write(begin, count, norm, p);
  }

  GW_DEVICE void write(std::int64_t begin, int count, float norm, float* p) const {
    const std::uint64_t element = first + static_cast<std::uint64_t>(begin);
    const auto words = draws.block<7>(element / kEach);
    const auto scaling = cpu::scaling_of<float>(norm, levels);
    std::uint64_t packed[2] = {0, 0};  // eight codes each
    unsigned ties = 0;
    for (int j = 0; j < kEach; ++j) {
      if (!(norm > 0) || j >= count) continue;
      const int sum =
          cpu::qsgd_sum(scaling, p[j], draw_in(words[static_cast<std::size_t>(j) / 4], j));
      if (cpu::qsgd_ties(sum)) ties |= 1u << j;
      packed[j / 8] |= static_cast<std::uint64_t>(cpu::qsgd_code_of(sum, bits)) << (j % 8 * bits);
    }
    for (; ties != 0; ties &= ties - 1)
      settle(std::countr_zero(ties), element, scaling, words, p, packed);
    const auto magnitude = cpu::magnitude_of<float>(norm, levels);
    for (int j = 0; j < kEach; ++j) {
      const int code = static_cast<int>(packed[j / 8] >> (j % 8 * bits)) & ((1 << bits) - 1);
      p[j] = p[j] - cpu::qsgd_value(magnitude, code, bits) * source.own_scale;
    }
    Sixteen::store_codes(codes + begin / 8 * bits, packed, bits, count, codes_in_words);
    if (source.next != nullptr) Sixteen::write(source.next + begin, count, floats_packed, p);
  }

  GW_DEVICE static int draw_in(std::uint32_t word, int j) {
    return static_cast<int>(word >> (j % 4 * 8) & 0xffu);
  }

  // Element j with its second draw: one in 256. Chosen by comparing, so that arrays stay in
  // registers.
  GW_DEVICE void settle(int j, std::uint64_t element, const cpu::QsgdScaling<float>& scaling,
                        const std::array<std::uint32_t, 4>& words, const float* p,
                        std::uint64_t* packed) const {
    float x = 0;
    for (int k = 0; k < kEach; ++k) x = k == j ? p[k] : x;
    std::uint32_t word = 0;
    for (int k = 0; k < 4; ++k) word = k == j / 4 ? words[static_cast<std::size_t>(k)] : word;
    const std::uint64_t code = cpu::qsgd_code(scaling, x, draw_in(word, j), draws,
                                              element + static_cast<unsigned>(j), bits);
    const int shift = j % 8 * bits;
    const std::uint64_t mask = ((std::uint64_t{1} << bits) - 1) << shift;
    for (int k = 0; k < 2; ++k) {
      if (k == j / 8) packed[k] = (packed[k] & ~mask) | code << shift;
    }
  }
};

}  // namespace gradwire::cuda
