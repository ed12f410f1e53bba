// Error-feedback state of an earlier run, possibly of another number of ranks, carried over.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// Fills `own` (views of this rank's live state) from `by_old_rank`, by name:
//   the same number of ranks   every tensor from the old rank of the same number, bit for bit
//   "<parameter>.error"        (1/n) sum over the n old ranks: the average residual stays
//   "<parameter>.error2"       the old ranks' chunks joined, cut for n' ranks, times n'/n: the
//                              residual is in units of the sum, which has n' addends from now on
//   "<parameter>.ef21.h", ".ef21.v"  as ".error"; ".ef21.mean" is equal on all ranks
//   "<parameter>.ef21.average", ".shard_error"  joined and cut anew as ".error2", not multiplied
//   both of these, of a parameter that the old ranks gathered (none has them, all have ".error" or
//                              ".ef21.mean")  0; the own elements of ".ef21.mean". ".error2" also
//                              between nodes
//   kBF16 and kI8 residuals    decoded, carried over, rounded to nearest; their ".scale" goes along
//   "<parameter>.coder.residual*"  as ".error": what a method with a feedback loop of its own keeps
//   "<parameter>.outer.*"      as reshard_outer.h says
//   anything else              equal on all ranks; from old rank 0
// `elems_of(parameter)` gives a parameter's number of elements. kInvalidArgument names the tensor
// that is missing, superfluous, or of another shape or type; `own` is then as it was.
class ParameterSizes {
 public:
  virtual ~ParameterSizes() = default;
  virtual std::int64_t elems_of(std::string_view parameter) const = 0;
};
Status reshard_state(std::span<const NamedTensor> own,
                     std::span<const std::vector<NamedTensor>> by_old_rank, int rank, int size,
                     const ParameterSizes& sizes);

}  // namespace gradwire
