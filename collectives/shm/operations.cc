#include "collectives/shm/operations.h"

#include <algorithm>
#include <cstring>

#include "collectives/plan/arguments.h"
#include "device/ops.h"

namespace gradwire {
namespace {

constexpr std::size_t kMostIdle = 4;  // buffers

bool reduces(OpKind kind) {
  return kind == OpKind::kReduce || kind == OpKind::kAllReduce || kind == OpKind::kAllReduceFused ||
         kind == OpKind::kReduceScatter || kind == OpKind::kReduceScatterV ||
         kind == OpKind::kExclusiveScan;
}

bool has_root(OpKind kind) {
  return kind == OpKind::kBroadcast || kind == OpKind::kReduce || kind == OpKind::kGather ||
         kind == OpKind::kGatherV || kind == OpKind::kScatter || kind == OpKind::kScatterV;
}

bool takes_counts(OpKind kind) {
  return kind == OpKind::kReduceScatterV || kind == OpKind::kAllGatherV ||
         kind == OpKind::kGatherV || kind == OpKind::kScatterV;
}

Status copy(ConstTensorView from, double factor, TensorView to, const Stream& stream) {
  if (factor != 1) return scaled_copy(from, factor, to, stream);
  if (from.data() != to.data()) std::memcpy(to.data(), from.data(), from.bytes().size());
  return {};
}

// The caller's input stays as it is: scaled, it is in `out` where that has room for it.
Status premultiply(ShmOperation& planned, const Extent& extent, const OpOptions& options,
                   ShmStaging& staging) {
  const ConstTensorView in(planned.call.in, Shape::vector(extent.in), extent.dtype);
  if (in.empty()) return {};
  std::byte* scaled = planned.call.out;
  std::shared_ptr<std::byte> lent;
  if (planned.call.kind != OpKind::kAllReduce) {
    GW_ASSIGN(lent, staging.lend(in.bytes().size()));
    scaled = lent.get();
  }
  planned.call.in = scaled;
  planned.own = std::move(lent);
  planned.before = [in, scaled, factor = options.factor, stream = options.stream] {
    return scaled_copy(in, factor, {scaled, Shape::vector(in.elems()), in.dtype()}, stream);
  };
  return {};
}

// Whether each tensor begins where the one before it ends.
bool adjacent(const std::vector<TensorView>& tensors) {
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i - 1].data() + tensors[i - 1].bytes().size() != tensors[i].data()) return false;
  }
  return true;
}

// Tensors that lie one after another are one already; others are copied to where they do, and
// back.
Status fuse(ShmOperation& planned, const OpCall& call, const OpOptions& options,
            ShmStaging& staging) {
  std::vector<TensorView> tensors(call.tensors.begin(), call.tensors.end());
  std::erase_if(tensors, [](const TensorView& tensor) { return tensor.empty(); });
  if (tensors.empty()) return {};
  std::shared_ptr<std::byte> lent;
  std::byte* data = tensors.front().data();
  const bool whole = adjacent(tensors);
  if (!whole) {
    GW_ASSIGN(lent, staging.lend(static_cast<std::size_t>(planned.call.elems) *
                                 size_of(planned.call.dtype)));
    data = lent.get();
  }
  planned.call.in = planned.call.out = data;
  if (whole && options.factor == 1) return {};
  planned.before = [tensors, lent, data, factor = options.factor, stream = options.stream] {
    std::byte* at = data;
    for (const TensorView& tensor : tensors) {
      GW_TRY(copy(tensor, factor, {at, Shape::vector(tensor.elems()), tensor.dtype()}, stream));
      at += tensor.bytes().size();
    }
    return Status();
  };
  if (whole) return {};
  planned.after = [tensors, lent, data] {
    const std::byte* at = data;
    for (const TensorView& tensor : tensors) {
      std::memcpy(tensor.data(), at, tensor.bytes().size());
      at += tensor.bytes().size();
    }
    return Status();
  };
  return {};
}

// The most frequent call of all: a plain all_reduce in place, of which nothing can be wrong. Its
// other checks take as long as a tenth of a small one.
bool is_plain(const OpCall& call, const OpOptions& options) {
  const bool plain_op = call.op == ReduceOp::kSum || call.op == ReduceOp::kMax ||
                        call.op == ReduceOp::kMin || call.op == ReduceOp::kProduct;
  return call.kind == OpKind::kAllReduce && plain_op && options.factor == 1 &&
         call.in.data() == call.out.data() && call.in.elems() == call.out.elems() &&
         call.in.dtype() == call.out.dtype() && !call.in.empty() && call.in.device() == Device{} &&
         call.out.device() == Device{};
}

}  // namespace

bool runs_in_memory(OpKind kind) {
  return kind != OpKind::kSend && kind != OpKind::kRecv && kind != OpKind::kAllToAllV;
}

Signature signature_of(const ShmCall& call) {
  return {.name = to_string(call.kind),
          .dtype = to_string(call.dtype),
          .reduce = reduces(call.kind) ? to_string(call.op) : std::string_view(),
          .elems = call.elems,
          .root = has_root(call.kind) ? call.root : -1};
}

Result<std::shared_ptr<std::byte>> ShmStaging::lend(std::size_t bytes) {
  Buffer taken;
  {
    const std::lock_guard lock(mutex_);
    const auto fits = std::ranges::find_if(
        idle_, [&](const Buffer& buffer) { return buffer.bytes().size() >= bytes; });
    if (fits != idle_.end()) {
      taken = std::move(*fits);
      idle_.erase(fits);
    }
  }
  if (taken.bytes().size() < bytes) {
    Result<Buffer> made = boards_->arena().allocate(bytes);
    if (!made.has_value()) made = Buffer::allocate(bytes);
    if (!made.has_value()) return made.error();
    taken = std::move(made).value();
  }
  std::byte* const data = taken.bytes().data();
  auto give_back = [self = shared_from_this(),
                    buffer = std::make_shared<Buffer>(std::move(taken))](std::byte*) {
    const std::lock_guard lock(self->mutex_);
    if (self->idle_.size() >= kMostIdle) self->idle_.erase(self->idle_.begin());
    self->idle_.push_back(std::move(*buffer));
  };
  return std::shared_ptr<std::byte>(data, std::move(give_back));
}

Status plan_in_memory(const OpCall& call, const OpOptions& options, int rank, int size,
                      ShmStaging& staging, ShmOperation& planned) {
  ShmCall& memory = planned.call;
  if (is_plain(call, options)) {
    memory = {.kind = call.kind,
              .dtype = call.in.dtype(),
              .op = call.op,
              .in = call.in.data(),
              .out = call.out.data(),
              .elems = call.in.elems()};
    return {};
  }
  GW_ASSIGN(const Extent extent, check_call(call, options, rank, size));
  memory.kind = call.kind;
  memory.dtype = extent.dtype;
  memory.op = call.op;
  memory.in = call.in.data();
  memory.out = call.out.data();
  memory.elems = call.kind == OpKind::kAllToAll ? extent.agreed / size : extent.agreed;
  memory.root = has_root(call.kind) ? call.peer : 0;
  if (takes_counts(call.kind)) memory.lengths.assign(call.counts.begin(), call.counts.end());
  if (call.kind == OpKind::kAllReduceFused) return fuse(planned, call, options, staging);
  if (options.factor != 1) return premultiply(planned, extent, options, staging);
  return {};
}

}  // namespace gradwire
