// Eight neighbouring elements of a thread, in registers: as many as share a block of draws.
#pragma once

#include "compress/cuda/slices.h"

namespace gradwire::cuda {

inline constexpr int kEight = 8;

// How many elements from `begin` on there are before `end`, at most eight.
constexpr int eight_or(std::int64_t begin, std::int64_t end) {
  return end - begin >= kEight ? kEight : end > begin ? static_cast<int>(end - begin) : 0;
}

struct Eight {
  using Four = Pack<float, 4>;

  // p = the source's elements begin ... begin + count - 1, then zeros. With `packed` its floats
  // begin at 16 bytes, and so does element `begin`.
  GW_DEVICE static void read(const Source& source, std::int64_t begin, int count, bool packed,
                             float* p) {
    if (!packed || count < kEight) {
      for (int j = 0; j < kEight; ++j) p[j] = j < count ? source.at(begin + j) : 0;
      return;
    }
    for (int q = 0; q < 2; ++q) {
      Four x = reinterpret_cast<const Four*>(source.grad + begin)[q];
      if (source.residual != nullptr) {
        const Four e = reinterpret_cast<const Four*>(source.residual + begin)[q];
        for (int j = 0; j < 4; ++j) x.at[j] += e.at[j];
      }
      for (int j = 0; j < 4; ++j) p[4 * q + j] = x.at[j];
    }
  }

  // With `packed` to begins at 16 bytes.
  GW_DEVICE static void write(float* to, int count, bool packed, const float* p) {
    if (packed && count == kEight) {
      reinterpret_cast<Four*>(to)[0] = {p[0], p[1], p[2], p[3]};
      reinterpret_cast<Four*>(to)[1] = {p[4], p[5], p[6], p[7]};
      return;
    }
    for (int j = 0; j < kEight; ++j) {
      if (j < count) to[j] = p[j];
    }
  }

  // to = or += value.
  GW_DEVICE static void put(float* to, int count, bool packed, bool add, const float* value) {
    if (!add) return write(to, count, packed, value);
    if (!packed || count < kEight) {
      for (int j = 0; j < kEight; ++j) {
        if (j < count) to[j] = to[j] + value[j];
      }
      return;
    }
    for (int q = 0; q < 2; ++q) {
      Four x = reinterpret_cast<const Four*>(to)[q];
      for (int j = 0; j < 4; ++j) x.at[j] += value[4 * q + j];
      reinterpret_cast<Four*>(to)[q] = x;
    }
  }
};

}  // namespace gradwire::cuda
