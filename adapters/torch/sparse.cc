// The sum of sparse tensors: every rank gathers all ranks' entries and adds them in rank order.
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>

#include <algorithm>
#include <numeric>

#include "adapters/torch/backend.h"
#include "adapters/torch/clock.h"
#include "adapters/torch/failure.h"
#include "adapters/torch/operations.h"

namespace gradwire::torch_backend {

namespace {

constexpr const char* kName = "all_reduce_sparse";

// Rank r's indices and values follow those of the ranks before it.
at::Tensor sum_of(const at::Tensor& like, const at::Tensor& indices, const at::Tensor& values,
                  const std::vector<std::int64_t>& entries) {
  std::vector<at::Tensor> all;
  std::int64_t at_entry = 0;
  const std::int64_t dims = like.sparse_dim();
  for (const std::int64_t count : entries) {
    const at::Tensor places = indices.narrow(0, at_entry * dims, count * dims).view({dims, count});
    all.push_back(at::_sparse_coo_tensor_unsafe(places, values.narrow(0, at_entry, count),
                                                like.sizes(), like.options())
                      .coalesce());
    at_entry += count;
  }
  at::Tensor sum = all[0];
  for (std::size_t r = 1; r < all.size(); ++r) sum = sum.add(all[r]);
  return sum.coalesce();
}

Operation gathering(const at::Tensor& tensor, const at::Tensor& own,
                    const std::vector<std::int64_t>& entries, std::chrono::milliseconds timeout) {
  Operation operation = operation_of(c10d::OpType::_ALLREDUCE_SPARSE, kName, timeout);
  const std::int64_t all = std::accumulate(entries.begin(), entries.end(), std::int64_t{0});
  const std::int64_t dims = own.sparse_dim();
  std::vector<std::int64_t> shape = own.values().sizes().vec();
  shape[0] = all;
  const at::Tensor values = at::empty(shape, own.values().options());
  const at::Tensor indices = at::empty({all * dims}, own.indices().options());
  const Moved as = moved(values.scalar_type());
  const std::int64_t row = values.numel() / std::max<std::int64_t>(all, 1) * as.per_element;
  std::vector<std::int64_t> index_counts;
  std::vector<std::int64_t> value_counts;
  for (const std::int64_t count : entries) {
    index_counts.push_back(count * dims);
    value_counts.push_back(count * row);
  }
  gw_op places = op_of(GW_OP_ALL_GATHER_V, GW_I64);
  places.in = operation.lent.input(own.indices(), at::kLong).data_ptr();
  places.out = indices.data_ptr();
  operation.ops.push_back(with_counts(operation, places, index_counts));
  gw_op contents = op_of(GW_OP_ALL_GATHER_V, as.dtype);
  contents.in = operation.lent.input(own.values(), values.scalar_type()).data_ptr();
  contents.out = values.data_ptr();
  operation.ops.push_back(with_counts(operation, contents, value_counts));
  operation.outputs = {tensor};
  operation.finish = [tensor, indices, values, entries] {
    tensor.copy_(sum_of(tensor, indices, values, entries));
  };
  return operation;
}

}  // namespace

// How many entries each rank has is exchanged before the call returns: all else is sized by it.
c10::intrusive_ptr<c10d::Work> GradwireBackend::allreduce_sparse(
    Tensors& tensors, const c10d::AllreduceOptions& opts) {
  TORCH_CHECK_VALUE(tensors.size() == 1 && tensors[0].layout() == c10::kSparse, "gradwire: ", kName,
                    ": expected one sparse tensor");
  TORCH_CHECK_VALUE(opts.reduceOp.op_ == c10d::ReduceOp::SUM, "gradwire: ", kName,
                    ": sparse tensors are only summed (expected SUM)");
  TORCH_CHECK_VALUE(tensors[0].device().is_cpu(), "gradwire: ", kName, ": a tensor lies on ",
                    tensors[0].device(), " (expected cpu)");
  check_caller(kName);
  const at::Tensor own = tensors[0].detach().coalesce();
  std::vector<std::int64_t> entries(static_cast<std::size_t>(size_));
  const std::int64_t mine = own._nnz();
  gw_op_options options = GW_OP_OPTIONS_INIT;
  options.timeout_seconds = seconds_of(timeout_for(opts.timeout));
  check(gw_all_gather(comm().get(), &mine, entries.data(), 1, GW_I64, &options, nullptr), kName);
  return start(gathering(tensors[0], own, entries, opts.timeout));
}

}  // namespace gradwire::torch_backend
