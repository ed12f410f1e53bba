// Data for checking collectives: every reduction has one right answer, whatever the order in which
// an algorithm combines, because no step rounds.
//
//   sum, mean, pre_mul_sum   whole numbers so small that the type holds the sum of all ranks'
//   product                  powers of two, few of them above 1
//   max, min                 any
//
// Integers may wrap around, in every order alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gradwire/tensor.h"

namespace gradwire::bench {

class ExactData {
 public:
  // Of a group of `ranks`.
  ExactData(DType dtype, ReduceOp op, int ranks);

  // Rank's factor for kPreMulSum: 1 or 2; else 1.
  double factor(int rank) const;
  // The rank's elements first, first + 1, ...
  void fill(TensorView tensor, int rank, std::int64_t first) const;
  // How many of the tensor's elements are not rank's elements from `first` on.
  std::int64_t count_wrong(ConstTensorView tensor, int rank, std::int64_t first) const;
  // How many are not the reduction of all ranks' elements from `first` on.
  std::int64_t count_wrong_reduction(ConstTensorView tensor, std::int64_t first) const;

 private:
  using Bytes = std::vector<std::byte>;
  double number(int rank, std::int64_t i) const;
  double reduction(std::int64_t i) const;
  Bytes period_of(int rank) const;

  DType dtype_;
  ReduceOp op_;
  int ranks_;
  std::int64_t most_;  // of a summand
  Bytes reduced_;      // one period
};

}  // namespace gradwire::bench
