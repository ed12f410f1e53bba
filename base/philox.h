// Counter-based random numbers: a pure function of (key, step, element), the same on any device,
// any thread count and after any restart. Source: Salmon, Moraes, Dror, Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011: Philox4x32-10.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace gradwire {

// Four 32-bit words for a 128-bit counter and a 64-bit key.
template <int Rounds = 10>
constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < Rounds; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// Mixes 64 bits well (the finaliser of SplitMix64); used to fold key parts together.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

inline constexpr int kSharedRank = -1;  // draws that all ranks make alike

// What a stream of draws is for. The numbers are part of reproducibility: append, never reorder.
enum class RandomUse : std::uint32_t {
  kDither = 1,
  kPowerSgdStart = 2,
  kInit = 3,
  kDataOrder = 4,
  kTest = 5,
  kHadamardSigns = 6,
  kResidualRounding = 7,
  kAtoms = 8,
  kPlaces = 9
};

// All draws of one (seed, use, tensor, rank, stage) at one step. Element e is word e % 4 of block e
// / 4.
class RandomStream {
 public:
  constexpr RandomStream(std::uint64_t seed, RandomUse use, std::uint64_t tensor, int rank,
                         int stage, std::uint64_t step)
      : key_(mix64(mix64(mix64(seed) ^ tensor) ^
                   (static_cast<std::uint64_t>(static_cast<std::uint32_t>(rank + 1)) << 32 |
                    static_cast<std::uint64_t>(use) << 8 | static_cast<std::uint64_t>(stage)))),
        step_(step) {}

  template <int Rounds = 10>
  constexpr std::array<std::uint32_t, 4> block(std::uint64_t index) const {
    return philox4x32<Rounds>(
        {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
         static_cast<std::uint32_t>(step_), static_cast<std::uint32_t>(step_ >> 32)},
        {static_cast<std::uint32_t>(key_), static_cast<std::uint32_t>(key_ >> 32)});
  }
  constexpr std::uint32_t word(std::uint64_t element) const {
    return block(element / 4)[element % 4];
  }
  // In [0, 1), multiples of 2^-24: exact in float.
  constexpr float uniform(std::uint64_t element) const {
    return static_cast<float>(word(element) >> 8) * 0x1p-24f;
  }
  // out[i] = word(first + i), many at a time: several counters side by side fill vector registers.
  void words(std::uint64_t first, std::span<std::uint32_t> out) const;
  constexpr std::uint64_t key() const { return key_; }
  constexpr std::uint64_t step() const { return step_; }

  // Standard normal by Box and Muller, from words 2e and 2e + 1 (computed in double).
  double normal(std::uint64_t element) const;

 private:
  std::uint64_t key_;
  std::uint64_t step_;
};

}  // namespace gradwire
