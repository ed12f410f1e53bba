// The ways of combining that nmse.h compares, in one thread, by a method's own wire format.
#pragma once

#include <span>
#include <vector>

#include "bench/nmse.h"
#include "gradwire/compressor.h"

namespace gradwire {

struct NmseSum {
  std::vector<float> sum;   // what every rank holds in the end, not divided by their number
  std::size_t payload = 0;  // bytes: of one rank's tensor, or of all chunks
};

// grads: one for each rank. The method is elementwise.
Result<NmseSum> combine_by_slices(const Compressor& compressor, NmseCombine way, std::uint64_t seed,
                                  std::span<const std::vector<float>> grads);

// What one rank's payload decodes to, in a job of its own, of a matrix of so many rows (0: of a
// vector).
Result<NmseSum> through_coder(const Compressor& compressor, std::uint64_t seed,
                              const std::vector<float>& grad, int matrix_rows = 0);

}  // namespace gradwire
