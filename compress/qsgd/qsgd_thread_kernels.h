// qsgd's plain kernels: a thread for each bucket's norm, and then one for every eight codes, which
// are whole bytes. Right for every grid and every beginning.
#pragma once

#include <cmath>

#include "compress/cuda/slices.h"
#include "compress/qsgd/qsgd_arithmetic.h"

namespace gradwire::cuda {

// What kernels of qsgd find.
enum QsgdFinding : unsigned {
  kQsgdNotFinite = 1,
  kQsgdNorm = 2,
  kQsgdLevel = 3,
  kQsgdFreeBits = 4
};

constexpr std::uint32_t magnitude_bits(float x) {
  return std::bit_cast<std::uint32_t>(x) << 1 >> 1;
}

// The first draw of element e of the tensor.
constexpr int draw_of(const RandomStream& draws, std::uint64_t e) {
  const auto word = draws.block<7>(e / 16)[e % 16 / 4];
  return static_cast<int>(word >> (e % 4 * 8) & 0xffu);
}

// Writes norms: one bucket a thread.
struct QsgdNorms {
  static constexpr unsigned kThreads = 128;
  using Shared = NothingShared;
  static constexpr int kSums = 16;  // partial sums of squares, as the format defines them

  Source source;
  std::int64_t bucket;
  bool l2;
  std::byte* wire;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t b = block.block() * kThreads + block.thread();
    const std::int64_t begin = b * bucket;
    if (begin >= source.count) return;
    const std::int64_t end = begin + bucket < source.count ? begin + bucket : source.count;
    std::uint32_t largest = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::uint32_t bits = magnitude_bits(source.at(i));
      largest = bits > largest ? bits : largest;
    }
    double norm = static_cast<double>(std::bit_cast<float>(largest));
    if (l2 && largest < 0x7f800000u) {
      const double length = l2_of(begin, end);
      norm = length > norm ? length : norm;
    }
    const float sent = cpu::norm_that_travels(norm);
    store_float(wire, b, sent);
    if (source.next != nullptr && sent != sent) {
      block.least(verdict, word_of(static_cast<std::uint64_t>(b), kQsgdNotFinite));
    }
  }

  GW_DEVICE double l2_of(std::int64_t begin, std::int64_t end) const {
    double lane[kSums] = {};
    for (std::int64_t i = begin; i < end; ++i) {
      const auto value = static_cast<double>(source.at(i));
      lane[(i - begin) % kSums] += value * value;
    }
    for (int half = kSums / 2; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) lane[j] += lane[j + half];
    }
    return std::sqrt(lane[0]);
  }
};

// Codes of elements whose norms are written, and what error feedback keeps: eight a thread.
struct QsgdCodes {
  static constexpr unsigned kThreads = 128;
  using Shared = NothingShared;

  Source source;
  std::int64_t bucket;
  int levels;
  int bits;
  RandomStream draws;
  std::uint64_t first;  // element of the tensor
  const std::byte* norms;
  std::byte* codes;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t group = block.block() * kThreads + block.thread();
    const std::int64_t begin = 8 * group;
    if (begin >= source.count) return;
    const int count = source.count - begin < 8 ? static_cast<int>(source.count - begin) : 8;
    std::uint64_t packed = 0;
    for (int j = 0; j < count; ++j) {
      const std::int64_t i = begin + j;
      const float norm = load_float(norms, i / bucket);
      const float p = source.at(i);
      int code = 0;
      if (norm > 0) {
        const auto e = first + static_cast<std::uint64_t>(i);
        code = cpu::qsgd_code(cpu::scaling_of<float>(norm, levels), p, draw_of(draws, e), draws, e,
                              bits);
      }
      packed |= static_cast<std::uint64_t>(code) << (j * bits);
      if (source.next != nullptr) {
        const float own = cpu::qsgd_value(cpu::magnitude_of<float>(norm, levels), code, bits);
        source.next[i] = p - own * source.own_scale;
      }
    }
    store_bytes(codes + group * bits, packed, (count * bits + 7) / 8);
  }
};

// Values of eight codes a thread; norms, levels and free bits are looked at on the way.
struct QsgdValues {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;
  using Four = Pack<float, 4>;

  const std::byte* norms;
  const std::byte* codes;
  std::int64_t bucket;
  int levels;
  int bits;
  bool add;
  bool packed;  // dst begins at 16 bytes
  float* dst;
  std::int64_t count;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t group = block.block() * kThreads + block.thread();
    const std::int64_t begin = 8 * group;
    if (begin >= count) return;
    const int some = count - begin < 8 ? static_cast<int>(count - begin) : 8;
    const int bytes = (some * bits + 7) / 8;
    const std::uint64_t folded = load_bytes(codes + group * bits, bytes);
    if (some * bits % 8 != 0 && folded >> (some * bits) != 0) {
      block.least(verdict, word_of(static_cast<std::uint64_t>(begin), kQsgdFreeBits));
    }
    const bool whole = some == 8 && packed;
    float value[8] = {};
    if (add && whole) {
      for (int q = 0; q < 2; ++q) {
        const Four old = reinterpret_cast<const Four*>(dst + begin)[q];
        for (int j = 0; j < 4; ++j) value[4 * q + j] = old.at[j];
      }
    }
    const int mask = (1 << bits) - 1;
    for (int j = 0; j < 8; ++j) {
      if (j < some) {
        const int code = static_cast<int>(folded >> (j * bits)) & mask;
        const float own = value_of(block, begin + j, code, mask >> 1);
        const float old = !add || whole ? value[j] : dst[begin + j];
        value[j] = add ? old + own : own;
      }
    }
    store(begin, some, whole, value);
  }

  template <class Block>
  GW_DEVICE float value_of(Block& block, std::int64_t i, int code, int level_mask) const {
    const std::uint32_t norm = load_word(norms, i / bucket);
    if (norm >= 0x7f800000u && norm != kNaNScaleBits) {
      block.least(verdict, word_of(static_cast<std::uint64_t>(i / bucket), kQsgdNorm));
    }
    if ((code & level_mask) > levels) {
      block.least(verdict, word_of(static_cast<std::uint64_t>(i), kQsgdLevel));
    }
    return cpu::qsgd_value(cpu::magnitude_of<float>(std::bit_cast<float>(norm), levels), code,
                           bits);
  }

  GW_DEVICE void store(std::int64_t begin, int some, bool whole, const float* value) const {
    if (whole) {
      for (int q = 0; q < 2; ++q) {
        reinterpret_cast<Four*>(dst + begin)[q] = {value[4 * q], value[4 * q + 1], value[4 * q + 2],
                                                   value[4 * q + 3]};
      }
      return;
    }
    for (int j = 0; j < 8; ++j) {  // of constant length: the values stay in registers
      if (j < some) dst[begin + j] = value[j];
    }
  }
};

}  // namespace gradwire::cuda
