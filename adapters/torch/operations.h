// What c10d's operations are made of: checked arguments and gradwire's operations as values.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "adapters/torch/work.h"

namespace gradwire::torch_backend {

Operation operation_of(c10d::OpType type, const char* name, std::chrono::milliseconds timeout);
gw_op op_of(gw_kind kind, gw_dtype dtype);
// The operation keeps the counts for as long as it is started with them.
gw_op with_counts(Operation& operation, gw_op op, std::vector<std::int64_t> counts,
                  std::vector<std::int64_t> recv_counts = {});

// Pre-multiplied sums become sums of inputs that are multiplied here, in new memory.
void scale_inputs(Operation& operation, int size);

// ValueErrors that name the operation, what was seen and what is wanted.
// The one tensor of a list.
const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* name);
// The one list of a list of lists, with a tensor for each rank.
const std::vector<at::Tensor>& only_list(const std::vector<std::vector<at::Tensor>>& lists,
                                         int size, const char* name);
// As many outputs as inputs, one or more.
void check_pairs(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                 const char* name);
// `rows` has `size` times the elements of `row`, and its type.
void check_rows(const at::Tensor& rows, const at::Tensor& row, int size, const char* name);
// Of one type, all in host memory.
void check_list(const std::vector<at::Tensor>& tensors, at::ScalarType type, const char* name);
// Elements of each tensor, as they move.
std::vector<std::int64_t> counts_of(const std::vector<at::Tensor>& tensors, std::int64_t factor);
// Elements for each rank of a tensor that is split along its first dimension; no splits: evenly.
std::vector<std::int64_t> split_elements(const at::Tensor& tensor,
                                         const std::vector<std::int64_t>& splits, int size,
                                         const Moved& as, const char* name);

}  // namespace gradwire::torch_backend
