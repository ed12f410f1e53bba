// Which sample is used when: a pure function of (seed, epoch, position), for any number of ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gradwire {

enum class Shuffle : std::uint8_t {
  kEpoch,  // one permutation per epoch
  kNone,   // file order, every epoch
};

// The order of one epoch after the other. Nothing is carried from epoch to epoch, so a resumed run
// needs the step number alone. Not thread-safe: it keeps the last epoch's order.
class DataOrder {
 public:
  DataOrder(std::int64_t samples, std::uint64_t seed, Shuffle shuffle);

  // All sample numbers in the order of epoch `epoch`, valid until the next call. The permutation is
  // Fisher and Yates's, last position first, position i drawing evenly from 0..i (Lemire, "Fast
  // random integer generation in an interval", TOMACS 2019, algorithm 5, over Philox words keyed by
  // (seed, epoch)).
  std::span<const std::uint32_t> epoch(std::int64_t epoch);

 private:
  std::uint64_t seed_;
  Shuffle shuffle_;
  std::int64_t current_ = -1;
  std::vector<std::uint32_t> order_;
};

// Step s of an epoch uses samples [batch s, batch (s + 1)) of its order; what is left at the end is
// dropped. Worker w of `workers` takes the w-th of equal parts. Requires batch % workers == 0.
std::span<const std::uint32_t> micro_batch(std::span<const std::uint32_t> order, std::int64_t batch,
                                           std::int64_t step_of_epoch, int worker, int workers);

}  // namespace gradwire
