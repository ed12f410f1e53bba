// One tensor of dgc on one rank; loop, selection, state and errors: dgc.h.
#pragma once

#include <memory>

#include "compress/sparse/sparse_coding.h"
#include "gradwire/coder.h"
#include "gradwire/compressor.h"

namespace gradwire {

struct DgcOptions {
  double ratio = 0.001;
  double momentum = 0.9;
  bool nesterov = false;
  bool masking = true;
  double clip = 0;       // of the gradient's norm over all ranks; 0: none
  double sample = 0.01;  // 1: exact
  SparseOptions pairs = {};
};

// `where` and the shape are checked.
Result<std::unique_ptr<Coder>> make_dgc_coder(const DgcOptions& options, const Shape& shape,
                                              const Compressor::Placement& where);

}  // namespace gradwire
