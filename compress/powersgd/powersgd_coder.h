// The two-round coder of powersgd; protocol and payload in powersgd.h.
#pragma once

#include <cstdint>
#include <memory>

#include "compress/powersgd/powersgd_kernels.h"
#include "gradwire/coder.h"
#include "gradwire/compressor.h"

namespace gradwire {

struct PowerSgdOptions {
  std::int64_t rank = 4;
  bool warm = true;
};

// The matrix that a shape stands for and min(rank, a, c); r == 0 for tensors that travel dense.
cpu::ThinShape thin_shape(const Shape& shape, std::int64_t rank);

std::unique_ptr<Coder> make_powersgd_coder(const Shape& shape, const PowerSgdOptions& options,
                                           const Compressor::Placement& where);

}  // namespace gradwire
