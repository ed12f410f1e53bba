// cltk on a CUDA device: choices and payloads are the host's bytes.
#pragma once

#include <cstddef>
#include <memory>

#include "compress/sparse/index_coding.h"
#include "gradwire/coder.h"
#include "gradwire/compressor.h"

namespace gradwire::cuda {

struct CltkChoice {
  std::size_t k = 0;
  IndexCoding coding = IndexCoding::kU32;
  bool exact = true;  // values travel as they are
};

// `inner` is open for k elements on where.device. kUnsupported unless where.dtype is kF32, and, by
// name, for codings of indices whose length hangs on them. encode(), and absorb() of round 0, wait
// for the stream.
Result<std::unique_ptr<Coder>> make_cltk_coder(const CltkChoice& choice,
                                               std::unique_ptr<Coder> inner, const Shape& shape,
                                               const Compressor::Placement& where);

}  // namespace gradwire::cuda
