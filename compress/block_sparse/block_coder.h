// One tensor of block_sparse on one rank; the payload is block_sparse.h's.
#pragma once

#include <cstdint>
#include <memory>

#include "compress/sparse/sparse_coding.h"
#include "gradwire/coder.h"
#include "gradwire/compressor.h"

namespace gradwire {

struct BlockOptions {
  std::int64_t block = 256;  // elements
  SparseOptions pairs = {};  // how blocks' numbers and values travel
};

// The most bytes of a payload of `elems` elements.
std::size_t most_block_bytes(const BlockOptions& options, std::int64_t elems, DType dtype);

// `where` is checked.
Result<std::unique_ptr<Coder>> make_block_coder(const BlockOptions& options, const Shape& shape,
                                                const Compressor::Placement& where);

}  // namespace gradwire
