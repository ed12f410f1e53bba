// qsgd's fast encoding, which reads memory once: a warp for each bucket, sixteen elements to a
// lane, which are the draws of one Philox block. The norm is the warp's, elements stay in
// registers, and codes and what error feedback keeps leave together. Memory: 4 bytes an element in
// and bits/8 out; with error feedback 8 in, and 4 more out.
#pragma once

#include "compress/qsgd/qsgd_thread_kernels.h"

namespace gradwire::cuda {

// Of buckets of 16, 32, ... 512 elements that begin at a multiple of 16 of the tensor, under the
// L-infinity norm.
struct QsgdWarps {
  static constexpr unsigned kThreads = 256;
  static constexpr int kEach = 16;  // elements of a lane
  using Shared = NothingShared;
  using Four = Pack<float, 4>;

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
    const int count = end - begin >= kEach ? kEach
                      : end > begin        ? static_cast<int>(end - begin)
                                           : 0;
    float p[kEach] = {};
    read(begin, count, p);
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

  GW_DEVICE void read(std::int64_t begin, int count, float* p) const {
    if (count == kEach && floats_packed) {
      for (int q = 0; q < kEach / 4; ++q) {
        Four x = reinterpret_cast<const Four*>(source.grad + begin)[q];
        if (source.residual != nullptr) {
          const Four e = reinterpret_cast<const Four*>(source.residual + begin)[q];
          for (int j = 0; j < 4; ++j) x.at[j] += e.at[j];
        }
        for (int j = 0; j < 4; ++j) p[4 * q + j] = x.at[j];
      }
      return;
    }
    for (int j = 0; j < kEach; ++j) {
      if (j < count) p[j] = source.at(begin + j);
    }
  }

  GW_DEVICE void write(std::int64_t begin, int count, float norm, float* p) const {
    const auto block_of_draws = (first + static_cast<std::uint64_t>(begin)) / kEach;
    const auto words = draws.block<7>(block_of_draws);
    const auto scaling = cpu::scaling_of<float>(norm, levels);
    const auto magnitude = cpu::magnitude_of<float>(norm, levels);
    std::uint64_t packed[2] = {0, 0};  // eight codes each
    for (int j = 0; j < kEach; ++j) {
      const int draw =
          static_cast<int>(words[static_cast<std::size_t>(j) / 4] >> (j % 4 * 8) & 0xffu);
      const int code = norm > 0 && j < count ? cpu::qsgd_code(scaling, p[j], draw, bits) : 0;
      packed[j / 8] |= static_cast<std::uint64_t>(code) << (j % 8 * bits);
      p[j] = p[j] - cpu::qsgd_value(magnitude, code, bits) * source.own_scale;
    }
    store_codes(codes + begin / 8 * bits, packed, (count * bits + 7) / 8);
    if (source.next != nullptr) store_next(begin, count, p);
  }

  GW_DEVICE void store_codes(std::byte* to, const std::uint64_t* packed, int bytes) const {
    if (codes_in_words && bytes == 2 * bits) {
      auto* words = reinterpret_cast<std::uint32_t*>(to);
      if (bits == 8) {
        words[0] = static_cast<std::uint32_t>(packed[0]);
        words[1] = static_cast<std::uint32_t>(packed[0] >> 32);
        words[2] = static_cast<std::uint32_t>(packed[1]);
        words[3] = static_cast<std::uint32_t>(packed[1] >> 32);
        return;
      }
      if (bits == 4) {
        words[0] = static_cast<std::uint32_t>(packed[0]);
        words[1] = static_cast<std::uint32_t>(packed[1]);
        return;
      }
      if (bits == 2) {
        words[0] = static_cast<std::uint32_t>(packed[0] | packed[1] << 16);
        return;
      }
    }
    store_bytes(to, packed[0], bytes < bits ? bytes : bits);
    if (bytes > bits) store_bytes(to + bits, packed[1], bytes - bits);
  }

  GW_DEVICE void store_next(std::int64_t begin, int count, const float* p) const {
    if (count == kEach && floats_packed) {
      for (int q = 0; q < kEach / 4; ++q) {
        reinterpret_cast<Four*>(source.next + begin)[q] = {p[4 * q], p[4 * q + 1], p[4 * q + 2],
                                                           p[4 * q + 3]};
      }
      return;
    }
    for (int j = 0; j < count; ++j) source.next[begin + j] = p[j];
  }
};

}  // namespace gradwire::cuda
