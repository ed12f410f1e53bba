// Sixteen neighbouring elements of a lane, in registers: how they are read, and how their codes and
// what error feedback keeps leave. Loops have constant lengths so that indices are known when the
// kernel is compiled.
#pragma once

#include "compress/cuda/slices.h"

namespace gradwire::cuda {

inline constexpr int kSixteen = 16;

// How many elements from `begin` on there are before `end`, at most sixteen.
constexpr int sixteen_or(std::int64_t begin, std::int64_t end) {
  return end - begin >= kSixteen ? kSixteen : end > begin ? static_cast<int>(end - begin) : 0;
}

struct Sixteen {
  // p = the source's elements begin ... begin + count - 1. With `packed` its floats begin at 16
  // bytes, and so does element `begin`.
  GW_DEVICE static void read(const Source& source, std::int64_t begin, int count, bool packed,
                             float* p) {
    using Four = Pack<float, 4>;
    if (count == kSixteen && packed) {
      for (int q = 0; q < kSixteen / 4; ++q) {
        Four x = reinterpret_cast<const Four*>(source.grad + begin)[q];
        if (source.residual != nullptr) {
          const Four e = reinterpret_cast<const Four*>(source.residual + begin)[q];
          for (int j = 0; j < 4; ++j) x.at[j] += e.at[j];
        }
        for (int j = 0; j < 4; ++j) p[4 * q + j] = x.at[j];
      }
      return;
    }
    for (int j = 0; j < kSixteen; ++j) {
      if (j < count) p[j] = source.at(begin + j);
    }
  }

  GW_DEVICE static void write(float* to, int count, bool packed, const float* p) {
    using Four = Pack<float, 4>;
    if (count == kSixteen && packed) {
      for (int q = 0; q < kSixteen / 4; ++q) {
        reinterpret_cast<Four*>(to)[q] = {p[4 * q], p[4 * q + 1], p[4 * q + 2], p[4 * q + 3]};
      }
      return;
    }
    for (int j = 0; j < kSixteen; ++j) {
      if (j < count) to[j] = p[j];
    }
  }

  // The first `count` of sixteen codes of `bits` bits, eight to each of `packed`. `in_words`: `to`
  // begins at 4 bytes.
  GW_DEVICE static void store_codes(std::byte* to, const std::uint64_t* packed, int bits, int count,
                                    bool in_words) {
    const int bytes = (count * bits + 7) / 8;
    if (in_words && count == kSixteen) {
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
};

}  // namespace gradwire::cuda
