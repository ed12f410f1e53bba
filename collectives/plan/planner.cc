#include "collectives/plan/planner.h"

#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/schedules/in_place.h"
#include "collectives/schedules/schedules.h"
#include "collectives/schedules/selection.h"
#include "device/ops.h"

namespace gradwire {
namespace {

// The operations that have algorithms; nothing for send and recv.
std::optional<Collective> collective_of(OpKind kind) {
  switch (kind) {
    case OpKind::kBroadcast: return Collective::kBroadcast;
    case OpKind::kReduce: return Collective::kReduce;
    case OpKind::kAllReduce:
    case OpKind::kAllReduceFused: return Collective::kAllReduce;
    case OpKind::kReduceScatter:
    case OpKind::kReduceScatterV: return Collective::kReduceScatter;
    case OpKind::kAllGather:
    case OpKind::kAllGatherV: return Collective::kAllGather;
    case OpKind::kGather:
    case OpKind::kGatherV: return Collective::kGather;
    case OpKind::kScatter:
    case OpKind::kScatterV: return Collective::kScatter;
    case OpKind::kAllToAll:
    case OpKind::kAllToAllV: return Collective::kAllToAll;
    case OpKind::kExclusiveScan: return Collective::kExclusiveScan;
    case OpKind::kBarrier: return Collective::kBarrier;
    case OpKind::kSend:
    case OpKind::kRecv: break;
  }
  return std::nullopt;
}

bool point_to_point(OpKind kind) { return kind == OpKind::kSend || kind == OpKind::kRecv; }

bool reduces(OpKind kind) {
  return kind == OpKind::kReduce || kind == OpKind::kAllReduce || kind == OpKind::kAllReduceFused ||
         kind == OpKind::kReduceScatter || kind == OpKind::kReduceScatterV ||
         kind == OpKind::kExclusiveScan;
}

bool has_root(OpKind kind) {
  return kind == OpKind::kBroadcast || kind == OpKind::kReduce || kind == OpKind::kGather ||
         kind == OpKind::kGatherV || kind == OpKind::kScatter || kind == OpKind::kScatterV;
}

// Elements of one row, or of the tensor where there are no rows.
std::int64_t row_elems(const OpCall& call, const Extent& extent, int size) {
  return call.kind == OpKind::kAllToAll ? extent.in / size : extent.agreed;
}

bool takes_counts(OpKind kind) {
  return kind == OpKind::kReduceScatterV || kind == OpKind::kAllGatherV ||
         kind == OpKind::kGatherV || kind == OpKind::kScatterV || kind == OpKind::kAllToAllV;
}

// Of the tensor or of all ranks' rows, as far as all ranks know: -1 for unequal rows of an
// all-to-all, of which everyone knows its own.
std::int64_t all_elems(const OpCall& call, Collective collective, std::int64_t elems, int size) {
  if (call.kind == OpKind::kAllToAllV) return -1;
  if (takes_counts(call.kind)) return std::reduce(call.counts.begin(), call.counts.end());
  const bool rows = collective == Collective::kReduceScatter ||
                    collective == Collective::kAllGather || collective == Collective::kGather ||
                    collective == Collective::kScatter || collective == Collective::kAllToAll;
  return rows ? elems * size : elems;
}

TensorView vector_at(std::byte* data, std::int64_t elems, DType dtype, Device device = {}) {
  return {data, Shape::vector(elems), dtype, device};
}

// dst = src, times factor where there is one.
Status copy_scaled(ConstTensorView src, double factor, TensorView dst, const Stream& stream) {
  if (factor != 1) return scaled_copy(src, factor, dst, stream);
  if (src.data() == dst.data()) return {};
  return copy_bytes(src.bytes(), src.device(), dst.bytes(), dst.device(), stream);
}

// Whether each tensor begins where the one before it ends.
bool adjacent(const std::vector<TensorView>& tensors) {
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i - 1].data() + tensors[i - 1].bytes().size() != tensors[i].data()) return false;
  }
  return true;
}

}  // namespace

Result<std::string_view> Planner::algorithm_for(OpKind kind, std::int64_t bytes,
                                                std::string_view wanted) {
  const std::optional<Collective> collective = collective_of(kind);
  if (!collective) {
    return Status(Code::kInvalidArgument, std::string(to_string(kind)) + ": has no algorithms");
  }
  const bool counted = takes_counts(kind);
  const bool has_default =
      collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
  if (wanted == "auto" && has_default) wanted = algorithm_;
  if (wanted == "auto" && bytes >= 0) return choice_.choose(*collective, bytes, counted);
  return resolve_algorithm(*collective, wanted, counted);
}

Result<Planner::Chosen> Planner::schedule_of(const OpCall& call, const Extent& extent,
                                             std::string_view wanted) {
  const std::optional<Collective> collective = collective_of(call.kind);
  if (!collective) {
    if (call.peer == kAnySource) return Chosen{{}, "direct"};  // not before the sender is known
    return call.kind == OpKind::kSend
               ? Chosen{point_to_point_send(rank_, size_, call.peer, extent.in), "direct"}
               : Chosen{point_to_point_recv(rank_, size_, call.peer, extent.out), "direct"};
  }
  ScheduleRequest request{.collective = *collective,
                          .rank = rank_,
                          .size = size_,
                          .elems = row_elems(call, extent, size_),
                          .root = call.peer,
                          .counts = call.counts,
                          .recv_counts = call.recv_counts,
                          .node_of = node_of_};
  const auto width = static_cast<std::int64_t>(size_of(extent.dtype));
  request.stretch_elems = kStretchBytes / width;
  const std::int64_t elems = all_elems(call, *collective, request.elems, size_);
  GW_ASSIGN(request.algorithm, algorithm_for(call.kind, elems < 0 ? elems : elems * width, wanted));
  const std::int64_t segment =
      elems < 0 ? 0 : choice_.segment_bytes(*collective, elems * width, request.algorithm);
  return Chosen{make_schedule(request), request.algorithm, segment};
}

Result<PlannedOperation> Planner::plan(const OpCall& call, const OpOptions& options) {
  GW_ASSIGN(Extent extent, check_call(call, options, rank_, size_));
  const Device device = device_of(call, extent, options);
  const bool on_device = device.space == MemorySpace::kCuda;
  PlannedOperation planned;
  planned.kind = call.kind;
  planned.elems = extent.agreed;
  planned.pair = point_to_point(call.kind);
  if (planned.pair) planned.peer = call.peer;
  if (planned.pair) planned.tag = call.tag;
  const bool own_stream = !on_device || options.stream.device == device;
  planned.operands = {.in = call.in.data(),
                      .out = call.out.data(),
                      .dtype = extent.dtype,
                      .op = call.op == ReduceOp::kPreMulSum ? ReduceOp::kSum : call.op,
                      .stream = own_stream ? options.stream : Stream{device, nullptr}};
  if (reduces(call.kind)) planned.reduce = to_string(call.op);
  if (has_root(call.kind)) planned.root = call.peer;
  GW_ASSIGN(Chosen chosen, schedule_of(call, extent, options.algorithm));
  planned.schedule = std::move(chosen.schedule);
  planned.algorithm = chosen.algorithm;
  planned.segment_bytes = chosen.segment_bytes;
  if (call.kind == OpKind::kAllReduceFused && !on_device) {
    GW_TRY(fuse(planned, call, extent, options));
  } else if (options.factor != 1 && call.kind != OpKind::kAllReduceFused) {
    GW_TRY(premultiply(planned, call, extent, options.factor));
  }
  if (call.kind == OpKind::kExclusiveScan && rank_ == 0) {
    planned.after = [op = planned.operands.op, out = call.out, stream = options.stream] {
      return fill_neutral(op, out, stream);
    };
  }
  if (on_device) GW_TRY(place_on(device, planned, call, extent, options.factor));
  fit_memory(planned, call, extent);
  return planned;
}

// The schedule for an input and an output that are, or are not, the same memory. In the host's
// memory that stands for a device's they are two.
void Planner::fit_memory(PlannedOperation& planned, const OpCall& call, const Extent& extent) {
  const Operands& operands = planned.operands;
  const bool staged = operands.staging && !operands.staging->out.empty();
  if (planned.schedule.in_place && extent.in > 0 && operands.in != operands.out) {
    planned.schedule = out_of_place(std::move(planned.schedule));
  } else if (!planned.schedule.in_place && extent.shared > 0 && !staged &&
             operands.in == call.in.data()) {
    planned.schedule =
        in_place(planned.schedule, {extent.shared, extent.in_begin, extent.out_begin});
  }
}

// The caller's input stays as it is: scaled, it is the operation's own. An all_reduce has room for
// it in `out`.
Status Planner::premultiply(PlannedOperation& planned, const OpCall& call, const Extent& extent,
                            double factor) const {
  Operands& operands = planned.operands;
  const ConstTensorView in(operands.in, Shape::vector(extent.in), extent.dtype, call.in.device());
  const bool alike = call.in.device().space == call.out.device().space;
  std::byte* scaled = operands.out;
  std::shared_ptr<std::byte> lent;
  if (planned.kind != OpKind::kAllReduce || !alike) {
    GW_ASSIGN(lent, memory_->lend(in.bytes().size(), in.device()));
    scaled = lent.get();
  }
  operands.in = scaled;
  planned.own = std::move(lent);
  planned.before = [in, factor, scaled, stream = operands.stream] {
    return scaled_copy(in, factor, vector_at(scaled, in.elems(), in.dtype(), in.device()), stream);
  };
  return {};
}

// Tensors that lie one after another are one already.
Status Planner::fuse(PlannedOperation& planned, const OpCall& call, const Extent& extent,
                     const OpOptions& options) const {
  std::vector<TensorView> tensors;
  for (const TensorView& tensor : call.tensors) {
    if (!tensor.empty()) tensors.push_back(tensor);
  }
  if (tensors.empty()) return {};
  const bool whole = adjacent(tensors);
  std::shared_ptr<std::byte> lent;
  if (!whole) {
    const std::size_t width = size_of(extent.dtype);
    GW_ASSIGN(lent, memory_->lend(static_cast<std::size_t>(extent.agreed) * width, {}));
  }
  std::byte* const data = whole ? tensors.front().data() : lent.get();
  planned.operands.in = planned.operands.out = data;
  const TensorView all = vector_at(data, extent.agreed, extent.dtype);
  if (whole) {
    planned.before = [all, factor = options.factor, stream = options.stream] {
      return copy_scaled(all, factor, all, stream);
    };
    return {};
  }
  planned.before = [tensors, lent, all, factor = options.factor, stream = options.stream] {
    std::int64_t begin = 0;
    for (const TensorView& tensor : tensors) {
      GW_TRY(copy_scaled(tensor, factor, all.slice(begin, tensor.elems()), stream));
      begin += tensor.elems();
    }
    return Status();
  };
  planned.after = [tensors, lent, all, stream = options.stream] {
    std::int64_t begin = 0;
    for (const TensorView& tensor : tensors) {
      GW_TRY(copy_scaled(all.slice(begin, tensor.elems()), 1, tensor, stream));
      begin += tensor.elems();
    }
    return Status();
  };
  return {};
}

}  // namespace gradwire
