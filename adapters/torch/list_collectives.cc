// c10d's collectives of a list of tensors, one for each rank: the lists lie one after another in
// one stretch of memory, which costs a copy where the caller's do not.
#include "adapters/torch/backend.h"
#include "adapters/torch/operations.h"

namespace gradwire::torch_backend {

namespace {

std::vector<at::Tensor> as_bytes(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> bytes;
  bytes.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    bytes.push_back(tensor.contiguous().view({-1}).view(at::kByte));
  }
  return bytes;
}

}  // namespace

c10::intrusive_ptr<c10d::Work> GradwireBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions& opts) {
  constexpr const char* kName = "all_gather";
  const at::Tensor& input = only(inputs, kName);
  const Tensors& rows = only_list(outputs, size_, kName);
  check_list(rows, input.scalar_type(), kName);
  const Moved as = moved(input.scalar_type());
  Operation operation = operation_of(c10d::OpType::ALLGATHER, kName, opts.timeout);
  gw_op op = op_of(GW_OP_ALL_GATHER_V, as.dtype);
  op.in = operation.lent.input(input, input.scalar_type()).data_ptr();
  op.out = operation.lent.flat_output(rows, input.scalar_type()).data_ptr();
  const std::vector<std::int64_t> counts = counts_of(rows, as.per_element);
  const auto own = static_cast<std::size_t>(rank_);
  TORCH_CHECK_VALUE(counts[own] == input.numel() * as.per_element, "gradwire: ", kName,
                    ": an input of ", input.numel(), " elements and an output for it of ",
                    rows[own].numel(), " (expected equally many)");
  operation.ops.push_back(with_counts(operation, op, counts));
  operation.outputs = rows;
  return start(std::move(operation));
}

// outputs[r][i]: rank r's inputs[i]. As bytes, so that types may differ.
c10::intrusive_ptr<c10d::Work> GradwireBackend::allgather_coalesced(
    TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  constexpr const char* kName = "all_gather_coalesced";
  TORCH_CHECK_VALUE(outputs.size() == static_cast<std::size_t>(size_) && !inputs.empty(),
                    "gradwire: ", kName, ": ", outputs.size(), " lists of outputs for ",
                    inputs.size(), " inputs (expected a list for each of ", size_, " ranks)");
  Operation operation = operation_of(c10d::OpType::ALLGATHER_COALESCED, kName, opts.timeout);
  for (const at::Tensor& input : inputs) check_tensor(input, kName);
  const at::Tensor in = operation.lent.flat_input(as_bytes(inputs), at::kByte);
  const at::Tensor out = at::empty({size_ * in.numel()}, in.options());
  operation.lent.kept.push_back(out);
  for (const Tensors& list : outputs) {
    check_pairs(list, inputs, kName);
    for (std::size_t i = 0; i < list.size(); ++i) check_rows(list[i], inputs[i], 1, kName);
    operation.outputs.insert(operation.outputs.end(), list.begin(), list.end());
  }
  operation.finish = [outputs = operation.outputs, out] {
    std::int64_t at_byte = 0;
    for (const at::Tensor& output : outputs) {
      const auto bytes = static_cast<std::int64_t>(output.nbytes());
      // A copy of its own, because a type's elements want to be aligned.
      const at::Tensor part = out.narrow(0, at_byte, bytes).clone();
      output.detach().copy_(part.view(output.scalar_type()).view(output.sizes()));
      at_byte += bytes;
    }
  };
  gw_op op = op_of(GW_OP_ALL_GATHER, GW_U8);
  op.in = in.data_ptr();
  op.out = out.data_ptr();
  op.count = in.numel();
  operation.ops.push_back(op);
  return start(std::move(operation));
}

c10::intrusive_ptr<c10d::Work> GradwireBackend::gather(TensorLists& outputs, Tensors& inputs,
                                                       const c10d::GatherOptions& opts) {
  constexpr const char* kName = "gather";
  const at::Tensor& input = only(inputs, kName);
  const Moved as = moved(input.scalar_type());
  Operation operation = operation_of(c10d::OpType::GATHER, kName, opts.timeout);
  gw_op op = op_of(GW_OP_GATHER, as.dtype);
  op.peer = static_cast<int>(opts.rootRank);
  op.in = operation.lent.input(input, input.scalar_type()).data_ptr();
  op.count = input.numel() * as.per_element;
  if (rank_ == op.peer) {
    const Tensors& rows = only_list(outputs, size_, kName);
    check_list(rows, input.scalar_type(), kName);
    for (const at::Tensor& row : rows) check_rows(row, input, 1, kName);
    op.out = operation.lent.flat_output(rows, input.scalar_type()).data_ptr();
    operation.outputs = rows;
  } else {
    TORCH_CHECK_VALUE(outputs.empty(), "gradwire: ", kName,
                      ": outputs on a rank that is not the root (expected none)");
  }
  operation.ops.push_back(op);
  return start(std::move(operation));
}

c10::intrusive_ptr<c10d::Work> GradwireBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                                        const c10d::ScatterOptions& opts) {
  constexpr const char* kName = "scatter";
  const at::Tensor& output = only(outputs, kName);
  const Moved as = moved(output.scalar_type());
  Operation operation = operation_of(c10d::OpType::SCATTER, kName, opts.timeout);
  gw_op op = op_of(GW_OP_SCATTER, as.dtype);
  op.peer = static_cast<int>(opts.rootRank);
  op.out = operation.lent.output(output, output.scalar_type(), false).data_ptr();
  op.count = output.numel() * as.per_element;
  if (rank_ == op.peer) {
    const Tensors& rows = only_list(inputs, size_, kName);
    check_list(rows, output.scalar_type(), kName);
    for (const at::Tensor& row : rows) check_rows(row, output, 1, kName);
    op.in = operation.lent.flat_input(rows, output.scalar_type()).data_ptr();
  } else {
    TORCH_CHECK_VALUE(inputs.empty(), "gradwire: ", kName,
                      ": inputs on a rank that is not the root (expected none)");
  }
  operation.ops.push_back(op);
  operation.outputs = outputs;
  return start(std::move(operation));
}

c10::intrusive_ptr<c10d::Work> GradwireBackend::reduce_scatter(
    Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) {
  constexpr const char* kName = "reduce_scatter";
  const at::Tensor& output = only(outputs, kName);
  const Tensors& rows = only_list(inputs, size_, kName);
  check_list(rows, output.scalar_type(), kName);
  const Reduced as = reduced(output.scalar_type(), opts.reduceOp);
  const auto own = static_cast<std::size_t>(rank_);
  TORCH_CHECK_VALUE(rows[own].numel() == output.numel(), "gradwire: ", kName, ": an output of ",
                    output.numel(), " elements and an input for it of ", rows[own].numel(),
                    " (expected equally many)");
  Operation operation = operation_of(c10d::OpType::REDUCE_SCATTER, kName, opts.timeout);
  gw_op op = op_of(GW_OP_REDUCE_SCATTER_V, as.dtype);
  op.in = operation.lent.flat_input(rows, as.held_as).data_ptr();
  op.out = operation.lent.output(output, as.held_as, false).data_ptr();
  op.reduction = as.op;
  operation.factor = as.factor;
  operation.ops.push_back(with_counts(operation, op, counts_of(rows, as.per_element)));
  operation.outputs = outputs;
  return start(std::move(operation));
}

c10::intrusive_ptr<c10d::Work> GradwireBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                         const c10d::AllToAllOptions& opts) {
  constexpr const char* kName = "all_to_all";
  const TensorLists both{outputs, inputs};
  for (const Tensors& list : both) {
    only_list({list}, size_, kName);
    check_list(list, outputs[0].scalar_type(), kName);
  }
  const at::ScalarType type = outputs[0].scalar_type();
  const Moved as = moved(type);
  Operation operation = operation_of(c10d::OpType::ALLTOALL, kName, opts.timeout);
  gw_op op = op_of(GW_OP_ALL_TO_ALL_V, as.dtype);
  op.in = operation.lent.flat_input(inputs, type).data_ptr();
  op.out = operation.lent.flat_output(outputs, type).data_ptr();
  operation.ops.push_back(with_counts(operation, op, counts_of(inputs, as.per_element),
                                      counts_of(outputs, as.per_element)));
  operation.outputs = outputs;
  return start(std::move(operation));
}

}  // namespace gradwire::torch_backend
