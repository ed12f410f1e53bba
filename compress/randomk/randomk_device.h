// randomk on a CUDA device: the host's places, and its values.
#pragma once

#include <cstddef>
#include <memory>

#include "gradwire/coder.h"
#include "gradwire/compressor.h"

namespace gradwire::cuda {

struct RandomkChoice {
  std::size_t k = 0;
  float factor = 1;   // multiplied into every value that is sent
  bool exact = true;  // values travel as they are
};

// `inner` is open for k elements on where.device. kUnsupported unless where.dtype is kF32. Encoding
// waits for the stream, to hear whether all elements are finite. While places are drawn, 4 bytes an
// element of memory are taken; between steps an eighth of a byte.
Result<std::unique_ptr<Coder>> make_randomk_coder(const RandomkChoice& choice,
                                                  std::unique_ptr<Coder> inner, const Shape& shape,
                                                  const Compressor::Placement& where);

}  // namespace gradwire::cuda
