// Operations of a communicator: every function makes a gw_op, and one place starts it.
#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include "adapters/c/bitwise.h"
#include "adapters/c/operation_call.h"
#include "adapters/c/outcome.h"
#include "adapters/c/places.h"
#include "adapters/c/work_cell.h"

namespace gradwire::c {
namespace {

// A gw_op whose unnamed fields are zero.
struct Spelled {
  gw_kind kind = GW_OP_BARRIER;
  gw_dtype dtype = GW_U8;
  gw_reduction reduction = GW_SUM;
  int peer = 0;
  const void* in = nullptr;
  void* out = nullptr;
  int64_t count = 0;
  const int64_t* counts = nullptr;
  const int64_t* recv_counts = nullptr;
  int tag = 0;
  gw_op op() const {
    return {kind, dtype, reduction, peer, tag, in, out, count, counts, recv_counts};
  }
};

// The operations' outcome, or a handle for it.
Status hand_out(const Group& group, Result<Work> started, int source, gw_work** work) {
  if (!started.has_value()) return started.error();
  if (work == nullptr) return std::move(started).value().wait();
  *work = new_work(OperationCell::of(group, std::move(started).value(), source));
  return {};
}

// Of the first version, which had no stream.
constexpr std::size_t kFirstSize = offsetof(gw_op_options, stream);

Result<OpOptions> options_of(const char* function, const gw_op_options* given) {
  gw_op_options options = GW_OP_OPTIONS_INIT;
  GW_TRY(read_struct(given, function, options, kFirstSize));
  if (!(options.timeout_seconds >= 0)) {
    return Status(Code::kInvalidArgument,
                  std::string(function) +
                      format(": timeout_seconds %g (expected 0 or more)", options.timeout_seconds));
  }
  OpOptions read;
  if (options.algorithm != nullptr) read.algorithm = options.algorithm;
  if (options.timeout_seconds > 0) read.deadline = until_in(options.timeout_seconds);
  if (options.factor != 0) read.factor = options.factor;
  GW_ASSIGN(read.stream, stream_of(function, options.stream));
  return read;
}

Result<int> tag_of(const char* function, const gw_op_options* given) {
  gw_op_options options = GW_OP_OPTIONS_INIT;
  GW_TRY(read_struct(given, function, options, kFirstSize));
  return options.tag;
}

bool reduces(gw_kind kind) {
  return kind == GW_OP_REDUCE || kind == GW_OP_ALL_REDUCE || kind == GW_OP_REDUCE_SCATTER ||
         kind == GW_OP_REDUCE_SCATTER_V || kind == GW_OP_EXCLUSIVE_SCAN;
}

Status start_bits(const char* function, Group& group, const gw_op& op, const OpOptions& options,
                  gw_work** work) {
  Result<BitwiseOperation> started = [&] {
    const std::lock_guard lock(group.order);
    return start_bitwise(function, *group.communicator, op, options);
  }();
  if (!started.has_value()) return started.error();
  BitwiseOperation& operation = started.value();
  if (work != nullptr) {
    *work = new_work(
        OperationCell::of(group, std::move(operation.exchange), -1, std::move(operation.fold)));
    return {};
  }
  GW_TRY(operation.exchange.wait());
  operation.fold();
  return {};
}

// A null work is for the caller to wait; then the operation has its number already.
gw_status start(const char* function, gw_comm* comm, const Spelled& spelled,
                const gw_op_options* given, gw_work** work) {
  return guarded([&]() -> Status {
    const gw_op op = spelled.op();
    if (work != nullptr) *work = nullptr;
    GW_TRY(check_handle(comm, function, "comm"));
    Group& group = *comm->group;
    Communicator& communicator = *group.communicator;
    GW_ASSIGN(const OpOptions options, options_of(function, given));
    if (reduces(op.kind) && is_bitwise(op.reduction)) {
      return start_bits(function, group, op, options, work);
    }
    GW_ASSIGN(const OpCall call, call_of(function, op, communicator.rank(), communicator.size(),
                                         options.stream.device));
    Result<Work> started = [&] {
      const std::lock_guard lock(group.order);
      return communicator.start(call, options);
    }();
    return hand_out(group, std::move(started), op.kind == GW_OP_RECV ? op.peer : -1, work);
  });
}

}  // namespace
}  // namespace gradwire::c

using namespace gradwire;
using namespace gradwire::c;

gw_status gw_broadcast(gw_comm* comm, void* buffer, int64_t count, gw_dtype dtype, int root,
                       const gw_op_options* options, gw_work** work) {
  return start(
      "gw_broadcast", comm,
      {.kind = GW_OP_BROADCAST, .dtype = dtype, .peer = root, .out = buffer, .count = count},
      options, work);
}

gw_status gw_reduce(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                    gw_reduction op, int root, const gw_op_options* options, gw_work** work) {
  return start("gw_reduce", comm,
               {.kind = GW_OP_REDUCE,
                .dtype = dtype,
                .reduction = op,
                .peer = root,
                .in = in,
                .out = out,
                .count = count},
               options, work);
}

gw_status gw_all_reduce(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                        gw_reduction op, const gw_op_options* options, gw_work** work) {
  return start("gw_all_reduce", comm,
               {.kind = GW_OP_ALL_REDUCE,
                .dtype = dtype,
                .reduction = op,
                .in = in,
                .out = out,
                .count = count},
               options, work);
}

gw_status gw_all_reduce_many(gw_comm* comm, void* const* tensors, const int64_t* counts,
                             size_t tensor_count, gw_dtype dtype, gw_reduction op,
                             const gw_op_options* options, gw_work** work) {
  constexpr const char* kName = "gw_all_reduce_many";
  return guarded([&]() -> Status {
    if (work != nullptr) *work = nullptr;
    GW_TRY(check_handle(comm, kName, "comm"));
    if (tensor_count > 0) GW_TRY(check_given(tensors, kName, "tensors"));
    if (tensor_count > 0) GW_TRY(check_given(counts, kName, "counts"));
    GW_ASSIGN(const OpOptions read, options_of(kName, options));
    GW_ASSIGN(const DType type, dtype_of(kName, dtype));
    GW_ASSIGN(const ReduceOp reduction, reduction_of(kName, op));
    std::vector<TensorView> views;
    for (size_t i = 0; i < tensor_count; ++i) {
      GW_ASSIGN(const TensorView view,
                view_of_row(kName, "a tensor", tensors[i], counts[i], type, read.stream.device));
      views.push_back(view);
    }
    Group& group = *comm->group;
    Result<Work> started = [&] {
      const std::lock_guard lock(group.order);
      return group.communicator->all_reduce_fused(views, reduction, read);
    }();
    return hand_out(group, std::move(started), -1, work);
  });
}

gw_status gw_reduce_scatter(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                            gw_reduction op, const gw_op_options* options, gw_work** work) {
  return start("gw_reduce_scatter", comm,
               {.kind = GW_OP_REDUCE_SCATTER,
                .dtype = dtype,
                .reduction = op,
                .in = in,
                .out = out,
                .count = count},
               options, work);
}

gw_status gw_reduce_scatter_v(gw_comm* comm, const void* in, void* out, const int64_t* counts,
                              gw_dtype dtype, gw_reduction op, const gw_op_options* options,
                              gw_work** work) {
  return start("gw_reduce_scatter_v", comm,
               {.kind = GW_OP_REDUCE_SCATTER_V,
                .dtype = dtype,
                .reduction = op,
                .in = in,
                .out = out,
                .counts = counts},
               options, work);
}

gw_status gw_all_gather(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                        const gw_op_options* options, gw_work** work) {
  return start("gw_all_gather", comm,
               {.kind = GW_OP_ALL_GATHER, .dtype = dtype, .in = in, .out = out, .count = count},
               options, work);
}

gw_status gw_all_gather_v(gw_comm* comm, const void* in, void* out, const int64_t* counts,
                          gw_dtype dtype, const gw_op_options* options, gw_work** work) {
  return start("gw_all_gather_v", comm,
               {.kind = GW_OP_ALL_GATHER_V, .dtype = dtype, .in = in, .out = out, .counts = counts},
               options, work);
}

gw_status gw_gather(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                    int root, const gw_op_options* options, gw_work** work) {
  return start(
      "gw_gather", comm,
      {.kind = GW_OP_GATHER, .dtype = dtype, .peer = root, .in = in, .out = out, .count = count},
      options, work);
}

gw_status gw_gather_v(gw_comm* comm, const void* in, void* out, const int64_t* counts,
                      gw_dtype dtype, int root, const gw_op_options* options, gw_work** work) {
  return start("gw_gather_v", comm,
               {.kind = GW_OP_GATHER_V,
                .dtype = dtype,
                .peer = root,
                .in = in,
                .out = out,
                .counts = counts},
               options, work);
}

gw_status gw_scatter(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                     int root, const gw_op_options* options, gw_work** work) {
  return start(
      "gw_scatter", comm,
      {.kind = GW_OP_SCATTER, .dtype = dtype, .peer = root, .in = in, .out = out, .count = count},
      options, work);
}

gw_status gw_scatter_v(gw_comm* comm, const void* in, void* out, const int64_t* counts,
                       gw_dtype dtype, int root, const gw_op_options* options, gw_work** work) {
  return start("gw_scatter_v", comm,
               {.kind = GW_OP_SCATTER_V,
                .dtype = dtype,
                .peer = root,
                .in = in,
                .out = out,
                .counts = counts},
               options, work);
}

gw_status gw_all_to_all(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                        const gw_op_options* options, gw_work** work) {
  return start("gw_all_to_all", comm,
               {.kind = GW_OP_ALL_TO_ALL, .dtype = dtype, .in = in, .out = out, .count = count},
               options, work);
}

gw_status gw_all_to_all_v(gw_comm* comm, const void* in, const int64_t* send_counts, void* out,
                          const int64_t* recv_counts, gw_dtype dtype, const gw_op_options* options,
                          gw_work** work) {
  return start("gw_all_to_all_v", comm,
               {.kind = GW_OP_ALL_TO_ALL_V,
                .dtype = dtype,
                .in = in,
                .out = out,
                .counts = send_counts,
                .recv_counts = recv_counts},
               options, work);
}

gw_status gw_exclusive_scan(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                            gw_reduction op, const gw_op_options* options, gw_work** work) {
  return start("gw_exclusive_scan", comm,
               {.kind = GW_OP_EXCLUSIVE_SCAN,
                .dtype = dtype,
                .reduction = op,
                .in = in,
                .out = out,
                .count = count},
               options, work);
}

gw_status gw_barrier(gw_comm* comm, const gw_op_options* options, gw_work** work) {
  return start("gw_barrier", comm, {.kind = GW_OP_BARRIER}, options, work);
}

namespace {

// Of a send or recv: the tag is in the options.
gw_status start_pair(const char* function, gw_comm* comm, c::Spelled op,
                     const gw_op_options* options, gw_work** work) {
  const gw_status read = guarded([&]() -> Status {
    GW_ASSIGN(op.tag, c::tag_of(function, options));
    return {};
  });
  if (read == GW_OK) return c::start(function, comm, op, options, work);
  if (work != nullptr) *work = nullptr;
  return read;
}

}  // namespace

gw_status gw_send(gw_comm* comm, const void* buffer, int64_t count, gw_dtype dtype, int peer,
                  const gw_op_options* options, gw_work** work) {
  return start_pair(
      "gw_send", comm,
      {.kind = GW_OP_SEND, .dtype = dtype, .peer = peer, .in = buffer, .count = count}, options,
      work);
}

gw_status gw_recv(gw_comm* comm, void* buffer, int64_t count, gw_dtype dtype, int peer,
                  const gw_op_options* options, gw_work** work) {
  return start_pair(
      "gw_recv", comm,
      {.kind = GW_OP_RECV, .dtype = dtype, .peer = peer, .out = buffer, .count = count}, options,
      work);
}

gw_status gw_probe(gw_comm* comm, int peer, double seconds, const gw_op_options* options,
                   int* source) {
  return guarded([&]() -> Status {
    GW_TRY(check_handle(comm, "gw_probe", "comm"));
    GW_TRY(check_given(source, "gw_probe", "source"));
    *source = -1;
    GW_ASSIGN(const int tag, c::tag_of("gw_probe", options));
    const Group& group = *comm->group;
    const double most = seconds >= 0 ? seconds : group.timeout_seconds;
    GW_ASSIGN(*source, group.communicator->probe(peer, tag, deadline_in(most)));
    return {};
  });
}

gw_status gw_start_all(gw_comm* comm, const gw_op* ops, size_t count, const gw_op_options* options,
                       gw_work** work) {
  return guarded([&]() -> Status {
    if (work != nullptr) *work = nullptr;
    GW_TRY(check_handle(comm, "gw_start_all", "comm"));
    if (count > 0) GW_TRY(check_given(ops, "gw_start_all", "ops"));
    Group& group = *comm->group;
    Communicator& communicator = *group.communicator;
    GW_ASSIGN(const OpOptions read, options_of("gw_start_all", options));
    std::vector<OpCall> calls;
    for (const gw_op& op : std::span(ops, count)) {
      if (op.kind == GW_OP_RECV && op.peer == GW_ANY_SOURCE) {
        return {Code::kInvalidArgument,
                "gw_start_all: a recv from any source (expected a peer; gw_recv takes any source)"};
      }
      GW_ASSIGN(const OpCall call, call_of("gw_start_all", op, communicator.rank(),
                                           communicator.size(), read.stream.device));
      calls.push_back(call);
    }
    if (calls.empty()) return hand_out(group, Work(nullptr), -1, work);
    Result<Work> started = [&] {
      const std::lock_guard lock(group.order);
      return communicator.start_all(calls, read);
    }();
    return hand_out(group, std::move(started), -1, work);
  });
}
