// One method on the host and on a device, and what is given to both.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "gradwire/registry.h"
#include "tests/gpu/on_device.h"

namespace gradwire::gpu {

inline constexpr Compressor::Placement kOnHost{.rank = 1, .size = 3, .seed = 11, .tensor = 77};
inline Compressor::Placement on_device() {
  Compressor::Placement where = kOnHost;
  where.device = kFirst;
  return where;
}

// Both formats of one spec.
struct Pair {
  std::unique_ptr<WireFormat> host;
  std::unique_ptr<WireFormat> device;
};
inline Pair open_pair(const std::string& spec) {
  auto made = Registry::builtin().make(spec);
  EXPECT_TRUE(made.has_value()) << spec << ": " << made.error().message();
  auto host = made.value()->open_slices(Shape::vector(1), kOnHost);
  auto device = made.value()->open_slices(Shape::vector(1), on_device());
  EXPECT_TRUE(host.has_value()) << host.error().message();
  EXPECT_TRUE(device.has_value()) << device.error().message();
  return {std::move(host).value(), std::move(device).value()};
}

// Magnitudes over many binades, zeros of both signs, runs of zeros that fill whole buckets.
inline std::vector<float> gradient(std::size_t count, std::uint64_t seed) {
  const RandomStream draws(seed, RandomUse::kTest, 0, 0, 0, 0);
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) {
    const float u = draws.uniform(i) - 0.5f;
    x[i] = u * std::ldexp(1.0f, static_cast<int>(draws.word(count + i) % 40) - 30);
    if (i % 17 == 3) x[i] = i % 2 == 0 ? 0.0f : -0.0f;
    if (i >= 1024 && i < 1600) x[i] = 0;
  }
  return x;
}

// Sizes around every unit that a kernel works in: one element, a byte of bits, a lane's part, a
// bucket, several blocks; and an end that fills nothing.
inline constexpr std::size_t kCounts[] = {1, 7, 16, 33, 512, 513, 5000, 12345};

// The values' bits, any NaN as one: which NaN comes out of a sum is the processor's own.
inline std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float x : values) {
    bits.push_back(std::isnan(x) ? 0x7fc00000u : std::bit_cast<std::uint32_t>(x));
  }
  return bits;
}
inline std::vector<std::uint32_t> bits_of(const OnDevice& there) {
  return bits_of(there.values<float>());
}

}  // namespace gradwire::gpu
