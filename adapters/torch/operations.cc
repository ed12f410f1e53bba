#include "adapters/torch/operations.h"

#include <numeric>

namespace gradwire::torch_backend {

Operation operation_of(c10d::OpType type, const char* name, std::chrono::milliseconds timeout) {
  Operation operation;
  operation.type = type;
  operation.name = name;
  operation.timeout = timeout;
  return operation;
}

gw_op op_of(gw_kind kind, gw_dtype dtype) {
  gw_op op = {};
  op.kind = kind;
  op.dtype = dtype;
  return op;
}

gw_op with_counts(Operation& operation, gw_op op, std::vector<std::int64_t> counts,
                  std::vector<std::int64_t> recv_counts) {
  operation.counts.push_back(std::move(counts));
  op.counts = operation.counts.back().data();
  if (!recv_counts.empty()) {
    operation.counts.push_back(std::move(recv_counts));
    op.recv_counts = operation.counts.back().data();
  }
  return op;
}

namespace {

// Of what can be multiplied by a factor.
at::ScalarType floating_type_of(gw_dtype dtype) {
  switch (dtype) {
    case GW_F64: return at::kDouble;
    case GW_F16: return at::kHalf;
    case GW_BF16: return at::kBFloat16;
    default: return at::kFloat;
  }
}

// Of what the operation reads, over all ranks' rows.
std::int64_t input_elements(const gw_op& op, int size) {
  if (op.counts != nullptr) return std::accumulate(op.counts, op.counts + size, std::int64_t{0});
  return op.kind == GW_OP_REDUCE_SCATTER ? op.count * size : op.count;
}

}  // namespace

void scale_inputs(Operation& operation, int size) {
  for (gw_op& op : operation.ops) {
    if (op.reduction != GW_PRE_MUL_SUM) continue;
    const at::Device device = operation.stream ? operation.stream->device() : at::Device(at::kCPU);
    const at::Tensor input = at::from_blob(
        const_cast<void*>(op.in), {input_elements(op, size)}, [](void*) {},
        at::dtype(floating_type_of(op.dtype)).device(device), device);
    operation.lent.kept.push_back(input.mul(operation.factor));
    op.in = operation.lent.kept.back().data_ptr();
    op.reduction = GW_SUM;
  }
}

const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* name) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "gradwire: ", name, ": ", tensors.size(),
                    " tensors (expected one)");
  check_tensor(tensors[0], name);
  return tensors[0];
}

const std::vector<at::Tensor>& only_list(const std::vector<std::vector<at::Tensor>>& lists,
                                         int size, const char* name) {
  TORCH_CHECK_VALUE(lists.size() == 1, "gradwire: ", name, ": ", lists.size(),
                    " lists of tensors (expected one)");
  TORCH_CHECK_VALUE(lists[0].size() == static_cast<std::size_t>(size), "gradwire: ", name, ": ",
                    lists[0].size(), " tensors (expected one for each of ", size, " ranks)");
  return lists[0];
}

void check_pairs(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                 const char* name) {
  TORCH_CHECK_VALUE(!inputs.empty() && outputs.size() == inputs.size(), "gradwire: ", name, ": ",
                    outputs.size(), " outputs and ", inputs.size(),
                    " inputs (expected equally many, at least one)");
}

void check_rows(const at::Tensor& rows, const at::Tensor& row, int size, const char* name) {
  check_tensor(rows, name);
  check_tensor(row, name);
  TORCH_CHECK_VALUE(rows.scalar_type() == row.scalar_type(), "gradwire: ", name,
                    ": tensors of types ", rows.scalar_type(), " and ", row.scalar_type(),
                    " (expected one type)");
  TORCH_CHECK_VALUE(rows.numel() == row.numel() * size, "gradwire: ", name, ": tensors of ",
                    rows.numel(), " and ", row.numel(), " elements (expected the one ", size,
                    " times the other)");
}

void check_list(const std::vector<at::Tensor>& tensors, at::ScalarType type, const char* name) {
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, name);
    TORCH_CHECK_VALUE(tensor.scalar_type() == type, "gradwire: ", name, ": tensors of types ",
                      tensor.scalar_type(), " and ", type, " (expected one type)");
  }
}

std::vector<std::int64_t> counts_of(const std::vector<at::Tensor>& tensors, std::int64_t factor) {
  std::vector<std::int64_t> counts;
  counts.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) counts.push_back(tensor.numel() * factor);
  return counts;
}

std::vector<std::int64_t> split_elements(const at::Tensor& tensor,
                                         const std::vector<std::int64_t>& splits, int size,
                                         const Moved& as, const char* name) {
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const std::int64_t row = rows == 0 ? 0 : tensor.numel() / rows * as.per_element;
  const auto ranks = static_cast<std::size_t>(size);
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % size == 0, "gradwire: ", name, ": a first dimension of ", rows,
                      " without splits (expected a multiple of ", size, ")");
    return std::vector<std::int64_t>(ranks, rows / size * row);
  }
  TORCH_CHECK_VALUE(splits.size() == ranks, "gradwire: ", name, ": ", splits.size(),
                    " splits (expected one for each of ", size, " ranks)");
  std::vector<std::int64_t> elements;
  std::int64_t all = 0;
  for (const std::int64_t split : splits) {
    TORCH_CHECK_VALUE(split >= 0, "gradwire: ", name, ": a split of ", split,
                      " (expected 0 or more)");
    all += split;
    elements.push_back(split * row);
  }
  TORCH_CHECK_VALUE(all == rows, "gradwire: ", name, ": splits of ", all,
                    " rows in all (expected the first dimension, ", rows, ")");
  return elements;
}

}  // namespace gradwire::torch_backend
