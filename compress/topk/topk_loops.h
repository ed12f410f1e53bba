// The inner loops of the selection. simd::, for fp32, takes the best instruction set of the machine
// and gives what plain:: gives.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "compress/corrected.h"
#include "compress/little_endian.h"
#include "compress/topk/topk_kernels.h"

namespace gradwire::cpu {

inline constexpr std::size_t kSlack = 16;  // elements that loops may write beyond what they return

namespace plain {

// index[0, result) = begin + i for those i whose key is at least `low`, ascending. With `next`:
// next[i] = p[i] for all.
template <typename T>
std::size_t collect(const Corrected<T>& p, TopkKey<T> low, std::uint32_t begin,
                    std::uint32_t* index, T* next) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < p.size; ++i) {
    const T value = p[i];
    index[count] = begin + static_cast<std::uint32_t>(i);
    count += topk_key(value) >= low ? 1 : 0;
    if (next != nullptr) next[i] = value;
  }
  return count;
}

template <typename T>
std::size_t count_at_least(const T* value, std::size_t size, TopkKey<T> low) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < size; ++i) count += topk_key(value[i]) >= low ? 1 : 0;
  return count;
}

// keys[0, result) = those in [low, high). Here and above low >= 1 and high is a key.
template <typename T>
std::size_t keys_between(const T* value, std::size_t size, TopkKey<T> low, TopkKey<T> high,
                         TopkKey<T>* keys) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < size; ++i) {
    keys[count] = topk_key(value[i]);
    count += keys[count] >= low && keys[count] < high ? 1 : 0;
  }
  return count;
}

// Those pairs whose key is at least `low`, k of them: the indices, then the values.
template <typename T>
void write_at_least(const T* value, const std::uint32_t* index, std::size_t size, TopkKey<T> low,
                    std::size_t k, std::byte* indices, std::byte* values) {
  std::size_t sent = 0;
  for (std::size_t i = 0; i < size && sent < k; ++i) {
    if (topk_key(value[i]) < low) continue;
    store_le<std::uint32_t>(indices, index[i], sent);
    store_le<T>(values, value[i], sent);
    ++sent;
  }
}

}  // namespace plain

namespace simd {

// As plain::; `index` and `keys` have kSlack more places than results.
std::size_t collect(const Corrected<float>& p, std::uint32_t low, std::uint32_t begin,
                    std::uint32_t* index, float* next);
std::size_t count_at_least(const float* value, std::size_t size, std::uint32_t low);
std::size_t keys_between(const float* value, std::size_t size, std::uint32_t low,
                         std::uint32_t high, std::uint32_t* keys);
void write_at_least(const float* value, const std::uint32_t* index, std::size_t size,
                    std::uint32_t low, std::size_t k, std::byte* indices, std::byte* values);

}  // namespace simd

// The loops for an element type.
template <typename T>
struct TopkLoops {
  static constexpr auto kCollect = plain::collect<T>;
  static constexpr auto kCountAtLeast = plain::count_at_least<T>;
  static constexpr auto kKeysBetween = plain::keys_between<T>;
  static constexpr auto kWriteAtLeast = plain::write_at_least<T>;
};
template <>
struct TopkLoops<float> {
  static constexpr auto kCollect = simd::collect;
  static constexpr auto kCountAtLeast = simd::count_at_least;
  static constexpr auto kKeysBetween = simd::keys_between;
  static constexpr auto kWriteAtLeast = simd::write_at_least;
};

}  // namespace gradwire::cpu
