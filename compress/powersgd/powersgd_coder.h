// The two-round coder of powersgd; protocol and payload in powersgd.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/philox.h"
#include "compress/powersgd/powersgd_kernels.h"
#include "gradwire/coder.h"
#include "gradwire/compressor.h"

namespace gradwire {

struct PowerSgdOptions {
  std::int64_t rank = 4;
  bool warm = true;
  double min_rate = 1;  // 0: matrices never travel dense
};

// The matrix that a shape stands for and min(rank, a, c); r == 0 for tensors that travel dense:
// those of one dimension, and matrices unless they are more than `min_rate` times as large as what
// a step sends, which is `share` of r (a + c) values: 1 for both factors, a half for one in turn.
cpu::ThinShape thin_shape(const Shape& shape, std::int64_t rank, double min_rate, double share = 1);

// What coders of powersgd draw: Q^T of `step`, and directions in place of vanished ones.
template <typename T>
void draw_powersgd_start(const Compressor::Placement& where, std::uint64_t step, std::span<T> q);
RandomStream powersgd_fresh(const Compressor::Placement& where, std::uint64_t step);

// kInvalidArgument unless `round` is the next after `absorbed` rounds of a step (-1: no step).
Status check_powersgd_turn(const char* call, int round, int absorbed);

std::unique_ptr<Coder> make_powersgd_coder(const Shape& shape, const PowerSgdOptions& options,
                                           const Compressor::Placement& where);

}  // namespace gradwire
