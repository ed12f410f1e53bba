// Passes over many values that leave one number.
//
// `Values` gives value i by operator[]: floats where they lie, or read out of fewer bits.
#pragma once

#include <bit>
#include <cstdint>

#include "device/cuda/launch.h"
#include "trainer/cuda/each.h"
#include "trainer/cuda/ordered_sums.h"

namespace gradwire::cuda {

// Every block adds up the squares of its part to parts[block].
template <class Values>
struct SquaresOfParts {
  static constexpr unsigned kThreads = 256;
  static constexpr std::int64_t kEach = 64 * kThreads;  // values of a part
  static constexpr std::int64_t kMostParts = 1024;
  struct Shared {
    double sums[kThreads];
  };

  Values values;
  std::int64_t count;
  double* parts;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::int64_t stride = block.blocks() * kThreads;
    double mine = 0;
    for (std::int64_t i = block.block() * kThreads + block.thread(); i < count; i += stride) {
      const auto value = static_cast<double>(values[i]);
      mine += value * value;
    }
    const double sum = sum_of_block<kThreads>(block, shared.sums, mine);
    if (block.thread() == 0) parts[block.block()] = sum;
  }
};

// One block.
struct SumOfParts {
  static constexpr unsigned kThreads = 256;
  struct Shared {
    double sums[kThreads];
  };

  const double* parts;
  std::int64_t count;
  double* sum;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    double mine = 0;
    for (std::int64_t i = block.thread(); i < count; i += kThreads) mine += parts[i];
    const double total = sum_of_block<kThreads>(block, shared.sums, mine);
    if (block.thread() == 0) *sum = total;
  }
};

template <class Values>
struct NotFinite {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  Values values;
  std::int64_t count;
  std::uint32_t* bad;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    constexpr std::uint32_t kExponent = 0x7f800000U;
    const std::int64_t stride = block.blocks() * kThreads;
    bool mine = false;
    for (std::int64_t i = block.block() * kThreads + block.thread(); i < count; i += stride) {
      mine = mine || (std::bit_cast<std::uint32_t>(values[i]) & kExponent) == kExponent;
    }
    if (block.any(mine) && block.lane() == 0) block.most(bad, 1U);
  }
};

struct ClearWord {
  std::uint32_t* word;
  GW_DEVICE void operator()(std::int64_t) const { *word = 0; }
};

// *sum = the sum of squares of `count` values, in an order that `count` alone decides.
template <class Values>
Status sum_squares(const Values& values, std::int64_t count, double* sum, const Stream& stream) {
  using Squares = SquaresOfParts<Values>;
  const OnDevice here(stream.device);
  GW_TRY(here.status());
  const std::int64_t wanted = blocks_for(count, Squares::kEach);
  const std::int64_t parts = wanted < Squares::kMostParts ? wanted : Squares::kMostParts;
  GW_ASSIGN(const Scratch sums,
            Scratch::allocate(static_cast<std::size_t>(parts) * sizeof(double), stream));
  GW_TRY(launch("squares", Squares{values, count, sums.as<double>()}, parts, stream));
  return launch("sum_of_squares", SumOfParts{sums.as<double>(), parts, sum}, 1, stream);
}

// *bad = 1 where one of `count` values is not finite, else 0.
template <class Values>
Status look_for_not_finite(const Values& values, std::int64_t count, std::uint32_t* bad,
                           const Stream& stream) {
  const OnDevice here(stream.device);
  GW_TRY(here.status());
  GW_TRY(for_each("clear", 1, ClearWord{bad}, stream));
  const std::int64_t blocks = blocks_for(count, NotFinite<Values>::kThreads);
  return launch("find_not_finite", NotFinite<Values>{values, count, bad},
                blocks < kMostBlocks ? blocks : kMostBlocks, stream);
}

}  // namespace gradwire::cuda
