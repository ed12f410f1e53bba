// One tensor of acpsgd on one rank.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/philox.h"
#include "compress/powersgd/powersgd_kernels.h"
#include "gradwire/coder.h"
#include "gradwire/compressor.h"

namespace gradwire {

struct AcpSgdOptions {
  std::int64_t rank = 4;
  double min_rate = 1;  // 0: matrices never travel dense
};

// The matrix of a tensor, as powersgd's: one factor travels at a step.
cpu::ThinShape acpsgd_shape(const Shape& shape, const AcpSgdOptions& options);

// What coders of acpsgd draw: the first P^T and Q^T, and directions in place of vanished ones.
template <typename T>
void draw_acpsgd_start(const Compressor::Placement& where, std::span<T> p, std::span<T> q);
RandomStream acpsgd_fresh(const Compressor::Placement& where, std::uint64_t step);

// kInvalidArgument, naming the call, unless `in_turn`.
Status check_acpsgd_turn(const char* call, bool in_turn);

// `where` is checked. Layout, state and errors: acpsgd.h.
std::unique_ptr<Coder> make_acpsgd_coder(const Shape& shape, const AcpSgdOptions& options,
                                         const Compressor::Placement& where);

}  // namespace gradwire
