// Which sample is used when: a pure function of (seed, epoch, position), for any number of ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/schedule.h"

namespace gradwire {

enum class Shuffle : std::uint8_t {
  kEpoch,    // one permutation per epoch
  kNone,     // file order, every epoch
  kUniform,  // every sample drawn evenly from all, with repetition
};

// The order of one epoch after the other. Nothing is carried from epoch to epoch, so a resumed run
// needs the step number alone. Not thread-safe: it keeps the last epoch's order.
class DataOrder {
 public:
  // `samples` places an epoch, each given a number below `population`: kUniform draws any, the
  // others take multiples of `stride`, for which samples * stride < population + stride holds.
  DataOrder(std::int64_t samples, std::uint64_t seed, Shuffle shuffle, std::int64_t population,
            std::int64_t stride = 1);
  DataOrder(std::int64_t samples, std::uint64_t seed, Shuffle shuffle)
      : DataOrder(samples, seed, shuffle, samples) {}

  // All sample numbers in the order of epoch `epoch`, valid until the next call. The permutation is
  // Fisher and Yates's, last position first, position i drawing evenly from 0..i (Lemire, "Fast
  // random integer generation in an interval", TOMACS 2019, algorithm 5, over Philox words keyed by
  // (seed, epoch)); kUniform draws place after place in the same way.
  std::span<const std::uint32_t> epoch(std::int64_t epoch);

 private:
  void in_file_order();

  std::uint64_t seed_;
  Shuffle shuffle_;
  std::uint32_t population_;
  std::uint32_t stride_;
  std::int64_t current_ = -1;
  std::vector<std::uint32_t> order_;
};

// Step s of an epoch uses samples [batch s, batch (s + 1)) of its order; what is left at the end is
// dropped. `own`: those of a micro-batch, from the step's first (BatchShares::samples_of()).
std::span<const std::uint32_t> micro_batch(std::span<const std::uint32_t> order, std::int64_t batch,
                                           std::int64_t step_of_epoch, Range own);

}  // namespace gradwire
