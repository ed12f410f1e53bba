#include "adapters/torch/starting.h"

#include <algorithm>

namespace gradwire::torch_backend {

namespace {

gw_status start_moving(gw_comm* comm, const gw_op& o, const gw_op_options* options,
                       gw_work** work) {
  switch (o.kind) {
    case GW_OP_BROADCAST: return gw_broadcast(comm, o.out, o.count, o.dtype, o.peer, options, work);
    case GW_OP_ALL_GATHER: return gw_all_gather(comm, o.in, o.out, o.count, o.dtype, options, work);
    case GW_OP_ALL_GATHER_V:
      return gw_all_gather_v(comm, o.in, o.out, o.counts, o.dtype, options, work);
    case GW_OP_GATHER: return gw_gather(comm, o.in, o.out, o.count, o.dtype, o.peer, options, work);
    case GW_OP_SCATTER:
      return gw_scatter(comm, o.in, o.out, o.count, o.dtype, o.peer, options, work);
    case GW_OP_ALL_TO_ALL_V:
      return gw_all_to_all_v(comm, o.in, o.counts, o.out, o.recv_counts, o.dtype, options, work);
    case GW_OP_BARRIER: return gw_barrier(comm, options, work);
    case GW_OP_SEND: return gw_send(comm, o.in, o.count, o.dtype, o.peer, options, work);
    case GW_OP_RECV: return gw_recv(comm, o.out, o.count, o.dtype, o.peer, options, work);
    default: return gw_start_all(comm, &o, 1, options, work);
  }
}

gw_status start_one(gw_comm* comm, const gw_op& o, gw_op_options options, gw_work** work) {
  options.tag = o.tag;
  switch (o.kind) {
    case GW_OP_REDUCE:
      return gw_reduce(comm, o.in, o.out, o.count, o.dtype, o.reduction, o.peer, &options, work);
    case GW_OP_ALL_REDUCE:
      return gw_all_reduce(comm, o.in, o.out, o.count, o.dtype, o.reduction, &options, work);
    case GW_OP_REDUCE_SCATTER:
      return gw_reduce_scatter(comm, o.in, o.out, o.count, o.dtype, o.reduction, &options, work);
    case GW_OP_REDUCE_SCATTER_V:
      return gw_reduce_scatter_v(comm, o.in, o.out, o.counts, o.dtype, o.reduction, &options, work);
    default: return start_moving(comm, o, &options, work);
  }
}

}  // namespace

gw_status start_ops(gw_comm* comm, const std::vector<gw_op>& ops, gw_op_options options,
                    gw_work** work) {
  if (ops.size() == 1) return start_one(comm, ops[0], options, work);
  const bool alike = !ops.empty() && std::all_of(ops.begin(), ops.end(), [&ops](const gw_op& o) {
    return o.kind == GW_OP_ALL_REDUCE && o.in == o.out && o.dtype == ops[0].dtype &&
           o.reduction == ops[0].reduction;
  });
  if (!alike) return gw_start_all(comm, ops.data(), ops.size(), &options, work);
  std::vector<void*> tensors;
  std::vector<std::int64_t> counts;
  for (const gw_op& o : ops) {
    tensors.push_back(o.out);
    counts.push_back(o.count);
  }
  return gw_all_reduce_many(comm, tensors.data(), counts.data(), ops.size(), ops[0].dtype,
                            ops[0].reduction, &options, work);
}

}  // namespace gradwire::torch_backend
