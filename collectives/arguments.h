// What callers may hand to a Communicator: checks that are the same on every rank's own side.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// kUnsupported unless in host memory.
Status check_host(std::string_view name, Device device);
// kInvalidArgument for a mean of integers.
Status check_reduction(std::string_view name, DType dtype, ReduceOp op);
// kInvalidArgument unless `in` and `out` have the same dtype and in_factor * in = out_factor * out
// elements.
Status check_shapes(std::string_view name, ConstTensorView in, std::int64_t in_factor,
                    ConstTensorView out, std::int64_t out_factor);
// kInvalidArgument unless there are `size` lengths, none negative, that sum up to `bytes`.
Status check_lengths(std::string_view name, std::string_view which,
                     std::span<const std::int64_t> lengths, int size, std::size_t bytes);
// kInvalidArgument unless 0 <= rank < size.
Status check_rank(std::string_view name, std::string_view which, int rank, int size);

}  // namespace gradwire
