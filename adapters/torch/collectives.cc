// c10d's collectives of one tensor a rank, and of many at once.
#include <ATen/DeviceAccelerator.h>

#include <algorithm>

#include "adapters/torch/backend.h"
#include "adapters/torch/failure.h"
#include "adapters/torch/operations.h"
#include "adapters/torch/streams.h"

namespace gradwire::torch_backend {

c10::intrusive_ptr<c10d::Work> GradwireBackend::broadcast(Tensors& tensors,
                                                          const c10d::BroadcastOptions& opts) {
  const at::Tensor& tensor = only(tensors, "broadcast");
  const Moved as = moved(tensor.scalar_type());
  Operation operation = operation_of(c10d::OpType::BROADCAST, "broadcast", opts.timeout);
  const at::Tensor held = operation.lent.output(tensor, tensor.scalar_type(), true);
  gw_op op = op_of(GW_OP_BROADCAST, as.dtype);
  op.out = held.data_ptr();
  op.count = held.numel() * as.per_element;
  op.peer = static_cast<int>(opts.rootRank);
  operation.ops.push_back(op);
  operation.outputs = tensors;
  return start(std::move(operation));
}

c10::intrusive_ptr<c10d::Work> GradwireBackend::allreduce(Tensors& tensors,
                                                          const c10d::AllreduceOptions& opts) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "gradwire: all_reduce: ", tensors.size(),
                    " tensors (expected one)");
  if (tensors[0].layout() == c10::kSparse) return allreduce_sparse(tensors, opts);
  c10d::AllreduceCoalescedOptions many;
  many.reduceOp = opts.reduceOp;
  many.timeout = opts.timeout;
  return allreduce_coalesced(tensors, many);
}

c10::intrusive_ptr<c10d::Work> GradwireBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  const bool one = tensors.size() == 1;
  Operation operation =
      operation_of(one ? c10d::OpType::ALLREDUCE : c10d::OpType::ALLREDUCE_COALESCED,
                   one ? "all_reduce" : "all_reduce_coalesced", opts.timeout);
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, operation.name);
    const Reduced as = reduced(tensor.scalar_type(), opts.reduceOp);
    const at::Tensor held = operation.lent.output(tensor, as.held_as, true);
    gw_op op = op_of(GW_OP_ALL_REDUCE, as.dtype);
    op.in = held.data_ptr();
    op.out = held.data_ptr();
    op.count = held.numel() * as.per_element;
    op.reduction = as.op;
    operation.factor = as.factor;
    operation.ops.push_back(op);
  }
  operation.outputs = tensors;
  return start(std::move(operation));
}

c10::intrusive_ptr<c10d::Work> GradwireBackend::reduce(Tensors& tensors,
                                                       const c10d::ReduceOptions& opts) {
  const at::Tensor& tensor = only(tensors, "reduce");
  const Reduced as = reduced(tensor.scalar_type(), opts.reduceOp);
  Operation operation = operation_of(c10d::OpType::REDUCE, "reduce", opts.timeout);
  gw_op op = op_of(GW_OP_REDUCE, as.dtype);
  op.peer = static_cast<int>(opts.rootRank);
  if (rank_ == op.peer) {
    const at::Tensor held = operation.lent.output(tensor, as.held_as, true);
    op.in = op.out = held.data_ptr();
  } else {
    op.in = operation.lent.input(tensor, as.held_as).data_ptr();
  }
  op.count = tensor.numel() * as.per_element;
  op.reduction = as.op;
  operation.factor = as.factor;
  operation.ops.push_back(op);
  operation.outputs = tensors;
  return start(std::move(operation));
}

c10::intrusive_ptr<c10d::Work> GradwireBackend::_allgather_base(
    at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) {
  return all_gather_many({output}, {input}, c10d::OpType::_ALLGATHER_BASE, "all_gather_into_tensor",
                         opts.timeout);
}

c10::intrusive_ptr<c10d::Work> GradwireBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  return all_gather_many(outputs, inputs, c10d::OpType::COALESCED,
                         "all_gather_into_tensor_coalesced", opts.timeout);
}

c10::intrusive_ptr<c10d::Work> GradwireBackend::all_gather_many(const Tensors& outputs,
                                                                const Tensors& inputs,
                                                                c10d::OpType type, const char* name,
                                                                std::chrono::milliseconds timeout) {
  check_pairs(outputs, inputs, name);
  Operation operation = operation_of(type, name, timeout);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_rows(outputs[i], inputs[i], size_, name);
    const Moved as = moved(inputs[i].scalar_type());
    gw_op op = op_of(GW_OP_ALL_GATHER, as.dtype);
    op.in = operation.lent.input(inputs[i], inputs[i].scalar_type()).data_ptr();
    op.out = operation.lent.output(outputs[i], outputs[i].scalar_type(), false).data_ptr();
    op.count = inputs[i].numel() * as.per_element;
    operation.ops.push_back(op);
  }
  operation.outputs = outputs;
  return start(std::move(operation));
}

c10::intrusive_ptr<c10d::Work> GradwireBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  return reduce_scatter_many({output}, {input}, c10d::OpType::_REDUCE_SCATTER_BASE,
                             "reduce_scatter_tensor", opts.reduceOp, opts.timeout);
}

c10::intrusive_ptr<c10d::Work> GradwireBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  return reduce_scatter_many(outputs, inputs, c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED,
                             "reduce_scatter_tensor_coalesced", opts.reduceOp, opts.timeout);
}

c10::intrusive_ptr<c10d::Work> GradwireBackend::reduce_scatter_many(
    const Tensors& outputs, const Tensors& inputs, c10d::OpType type, const char* name,
    const c10d::ReduceOp& reduce_op, std::chrono::milliseconds timeout) {
  check_pairs(outputs, inputs, name);
  Operation operation = operation_of(type, name, timeout);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_rows(inputs[i], outputs[i], size_, name);
    const Reduced as = reduced(inputs[i].scalar_type(), reduce_op);
    gw_op op = op_of(GW_OP_REDUCE_SCATTER, as.dtype);
    op.in = operation.lent.input(inputs[i], as.held_as).data_ptr();
    op.out = operation.lent.output(outputs[i], as.held_as, false).data_ptr();
    op.count = outputs[i].numel() * as.per_element;
    op.reduction = as.op;
    operation.factor = as.factor;
    operation.ops.push_back(op);
  }
  operation.outputs = outputs;
  return start(std::move(operation));
}

c10::intrusive_ptr<c10d::Work> GradwireBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                              std::vector<int64_t>& output_splits,
                                                              std::vector<int64_t>& input_splits,
                                                              const c10d::AllToAllOptions& opts) {
  constexpr const char* kName = "all_to_all_single";
  check_tensor(output, kName);
  check_tensor(input, kName);
  TORCH_CHECK_VALUE(output.scalar_type() == input.scalar_type(), "gradwire: ", kName,
                    ": the output is of type ", output.scalar_type(), ", the input of ",
                    input.scalar_type(), " (expected one type)");
  const Moved as = moved(input.scalar_type());
  const std::vector<std::int64_t> sent = split_elements(input, input_splits, size_, as, kName);
  const std::vector<std::int64_t> taken = split_elements(output, output_splits, size_, as, kName);
  Operation operation = operation_of(c10d::OpType::ALLTOALL_BASE, kName, opts.timeout);
  gw_op op = op_of(GW_OP_ALL_TO_ALL_V, as.dtype);
  op.in = operation.lent.input(input, input.scalar_type()).data_ptr();
  op.out = operation.lent.output(output, output.scalar_type(), false).data_ptr();
  operation.ops.push_back(with_counts(operation, op, sent, taken));
  operation.outputs = {output};
  return start(std::move(operation));
}

c10::intrusive_ptr<c10d::Work> GradwireBackend::barrier(const c10d::BarrierOptions& opts) {
  Operation operation = operation_of(c10d::OpType::BARRIER, "barrier", opts.timeout);
  operation.ops.push_back(op_of(GW_OP_BARRIER, GW_U8));
  // With a device it is passed when the devices are: after what each rank's current stream holds.
  // c10d hands on the numbers alone, which are those of the accelerator.
  std::optional<at::Device> device = opts.device;
  if (!device && !opts.device_ids.empty()) {
    const auto type = at::getAccelerator();
    if (type) device.emplace(*type, static_cast<c10::DeviceIndex>(opts.device_ids.front()));
  }
  operation.stream = current_stream(device);
  return start(std::move(operation));
}

}  // namespace gradwire::torch_backend
