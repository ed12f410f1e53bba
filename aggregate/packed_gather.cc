#include "aggregate/packed_gather.h"

#include <utility>

#include "base/text.h"
#include "compress/error_feedback/stored_residual.h"
#include "device/ops.h"

namespace gradwire {

PackedGather::PackedGather(const ExchangeContext& context, std::span<const PackedPart> parts, Of of,
                           std::string_view residual)
    : context_(context),
      parts_(parts),
      of_(of),
      residual_(residual),
      rank_(context.communicator.rank()),
      size_(context.communicator.size()) {
  results_ = ShardLayout::of(parts, size_, stage(), [](int r) { return r; });
  send_.resize(static_cast<std::size_t>(results_.rank_bytes[static_cast<std::size_t>(rank_)]));
  receive_.resize(results_.total);
}

Result<std::unique_ptr<PackedGather>> PackedGather::open(const ExchangeContext& context,
                                                         std::span<const PackedPart> parts, Of of,
                                                         std::string_view residual) {
  std::unique_ptr<PackedGather> gather(new PackedGather(context, parts, of, residual));
  GW_TRY(gather->allocate());
  return gather;
}

Status PackedGather::allocate() {
  for (const PackedPart& part : parts_) {
    const TensorView& grad = part.parameter->grad;
    Held held;
    if (part.runs()) {
      GW_ASSIGN(held.mean_buffer, Buffer::allocate(grad.bytes().size()));
      held.mean = held.mean_buffer.tensor(grad.shape(), grad.dtype());
    } else {
      const Shape own = Shape::vector(shard_of(*part.parameter, size_, rank_).size());
      held.feedback =
          make_slice_feedback(part.parameter->feedback, own, placement_of(context_, part), stage());
    }
    held_.push_back(std::move(held));
  }
  GW_ASSIGN(decoded_, Buffer::allocate(largest_shard_bytes(parts_, size_)));
  return {};
}

double PackedGather::share(const PackedPart& part) const {
  return of_ == Of::kSum && !part.vote ? 1.0 / size_ : 1.0;
}

ByteSpan PackedGather::own_wire(std::size_t t) {
  const Range slot = results_.slot(rank_, t);
  const std::int64_t start = results_.slot(rank_, 0).begin;
  return ByteSpan(send_).subspan(static_cast<std::size_t>(slot.begin - start),
                                 static_cast<std::size_t>(slot.size()));
}

Status PackedGather::pack(std::size_t t, TensorView values, std::uint64_t step) {
  step_ = step;
  const Status status = values.elems() == 0 ? Status() : pack_shard(t, values);
  return status.ok() ? status : parts_[t].named(status);
}

Status PackedGather::pack_shard(std::size_t t, TensorView values) {
  const PackedPart& part = parts_[t];
  Held& held = held_[t];
  const Range own = shard_of(*part.parameter, size_, rank_);
  const TensorView there = decoded_.tensor(Shape::vector(own.size()), values.dtype());
  if (part.runs()) {  // what the mean lacks
    GW_TRY(scaled_copy(held.mean.slice(own.begin, own.size()), -1 / share(part), there, {}));
    GW_TRY(reduce(ReduceOp::kSum, there, values, {}));
  }
  const bool at_once = held.feedback != nullptr && held.feedback->packs(*part.format);
  if (held.feedback != nullptr && !at_once) {
    GW_ASSIGN(values, held.feedback->correct(values, step_));
  }
  const ByteSpan wire = own_wire(t);
  const Slice slice = part.slice(step_, rank_, stage(), own);
  const PackedPiece piece{values, 0, slice, part.parameter->scale};
  GW_ASSIGN(const std::size_t wrote, at_once ? held.feedback->pack(*part.format, piece, wire)
                                             : part.format->pack(values, slice, wire, {}));
  if (wrote != wire.size()) {
    return {Code::kInternal, format("packed %zu bytes (%zu claimed)", wrote, wire.size())};
  }
  if (held.feedback == nullptr) return {};
  if (at_once) return held.feedback->finish();
  GW_TRY(part.format->unpack(wire, slice, there, {}));
  if (part.parameter->scale != 1) GW_TRY(scale(there, part.parameter->scale, {}));
  GW_TRY(held.feedback->settle(0, there));
  return held.feedback->finish();
}

bool PackedGather::folds(std::size_t t) const {
  const PackedPart& part = parts_[t];
  return part.format->folds() && !part.vote && !part.feeds_back() && part.parameter->scale == 1;
}

Status PackedGather::fold(std::size_t t, std::span<const Addend> addends, std::uint64_t step) {
  step_ = step;
  const PackedPart& part = parts_[t];
  const Range own = shard_of(*part.parameter, size_, rank_);
  const Slice slice = part.slice(step, rank_, stage(), own);
  const Result<std::size_t> wrote = part.format->fold(addends, own.size(), slice, own_wire(t), {});
  if (wrote.has_value()) return {};
  return part.named(wrote.error().with_context("shards by rank"));
}

Result<std::optional<Work>> PackedGather::issue() {
  GW_ASSIGN(Work work, context_.communicator.all_gather_v(send_, receive_, results_.rank_bytes));
  return std::optional<Work>(std::move(work));
}

Status PackedGather::unpack() {
  for (std::size_t t = 0; t < parts_.size(); ++t) {
    const Status status = unpack_part(t);
    if (!status.ok()) return parts_[t].named(status);
  }
  return {};
}

Status PackedGather::unpack_part(std::size_t t) {
  const PackedPart& part = parts_[t];
  const TensorView& grad = part.parameter->grad;
  for (int r = 0; r < size_; ++r) {
    const Range elems = shard_of(*part.parameter, size_, r);
    if (elems.size() == 0) continue;
    const Status status =
        part.format->unpack(results_.at(receive_, r, t), part.slice(step_, r, stage(), elems),
                            grad.slice(elems.begin, elems.size()), {});
    if (!status.ok()) return status.with_context(format("result of rank %d", r));
  }
  if (part.parameter->scale != 1) GW_TRY(scale(grad, part.parameter->scale, {}));
  if (share(part) != 1) GW_TRY(scale(grad, share(part), {}));
  if (!part.runs()) return {};
  GW_TRY(reduce(ReduceOp::kSum, grad, held_[t].mean, {}));
  return copy_bytes(held_[t].mean.bytes(), {}, grad.bytes(), {}, {});
}

std::vector<NamedTensor> PackedGather::state() {
  std::vector<NamedTensor> all;
  for (std::size_t t = 0; t < parts_.size(); ++t) {
    const std::string& name = parts_[t].parameter->name;
    if (parts_[t].runs()) all.push_back({name + ".ef21.mean", held_[t].mean});
    if (held_[t].feedback == nullptr) continue;
    for (const NamedTensor& entry : held_[t].feedback->state()) {
      // "error" and "error.scale" under this half's name.
      const std::string tail = entry.name.substr(kResidualState.size());
      all.push_back({name + "." + residual_ + tail, entry.tensor});
    }
  }
  return all;
}

}  // namespace gradwire
