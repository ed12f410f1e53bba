#include "aggregate/packed_gather.h"

#include <utility>

#include "base/text.h"
#include "compress/error_feedback/stored_residual.h"
#include "device/ops.h"

namespace gradwire {

PackedGather::PackedGather(const ExchangeContext& context, std::span<const PackedPart> parts, Of of,
                           std::string_view residual, int strips)
    : context_(context),
      parts_(parts),
      of_(of),
      residual_(residual),
      rank_(context.communicator.rank()),
      size_(context.communicator.size()) {
  for (int i = 0; i < strips; ++i) {
    Lane lane;
    lane.strip = {i, strips};
    lay_out(lane);
    lanes_.push_back(std::move(lane));
  }
}

void PackedGather::lay_out(Lane& lane) const {
  lane.results = ShardLayout::of(parts_, size_, stage(), lane.strip, [](int r) { return r; });
}

Status PackedGather::turn_to(std::uint64_t step) {
  if (laid_out_ == step) return {};
  laid_out_ = step;
  if (!turn_parts(parts_, step)) return {};
  for (Lane& lane : lanes_) {
    lay_out(lane);
    const auto own = lane.results.rank_bytes[static_cast<std::size_t>(rank_)];
    const bool fits = lane.send.bytes().size() == static_cast<std::size_t>(own) &&
                      lane.receive.bytes().size() == lane.results.total;
    if (!fits) GW_TRY(allocate(lane));
  }
  return {};
}

Status PackedGather::allocate(Lane& lane) const {
  const auto own = lane.results.rank_bytes[static_cast<std::size_t>(rank_)];
  GW_ASSIGN(lane.send, Buffer::allocate(static_cast<std::size_t>(own), stream().device));
  GW_ASSIGN(lane.receive, Buffer::allocate(lane.results.total, stream().device));
  return {};
}

Result<std::unique_ptr<PackedGather>> PackedGather::open(const ExchangeContext& context,
                                                         std::span<const PackedPart> parts, Of of,
                                                         std::string_view residual, int strips) {
  std::unique_ptr<PackedGather> gather(new PackedGather(context, parts, of, residual, strips));
  GW_TRY(gather->allocate());
  return gather;
}

Status PackedGather::allocate() {
  const Device device = stream().device;
  for (Lane& lane : lanes_) GW_TRY(allocate(lane));
  for (const PackedPart& part : parts_) {
    const TensorView& grad = part.parameter->grad;
    Held held;
    if (part.runs()) {
      GW_ASSIGN(held.mean_buffer, Buffer::allocate(grad.bytes().size(), device));
      held.mean = held.mean_buffer.tensor(grad.shape(), grad.dtype());
    } else {
      const Shape own = Shape::vector(shard_of(*part.parameter, size_, rank_).size());
      GW_ASSIGN(held.feedback,
                make_slice_feedback(part.parameter->feedback, own, placement_of(context_, part),
                                    stage(), stream()));
    }
    held_.push_back(std::move(held));
  }
  GW_ASSIGN(decoded_, Buffer::allocate(largest_shard_bytes(parts_, size_), device));
  return {};
}

double PackedGather::share(const PackedPart& part) const {
  return of_ == Of::kSum && !part.vote ? 1.0 / size_ : 1.0;
}

ByteSpan PackedGather::own_wire(std::size_t t, Lane& lane) const {
  const Range slot = lane.results.slot(rank_, t);
  const std::int64_t start = lane.results.slot(rank_, 0).begin;
  return lane.send.bytes().subspan(static_cast<std::size_t>(slot.begin - start),
                                   static_cast<std::size_t>(slot.size()));
}

Status PackedGather::pack(std::size_t t, TensorView values, std::uint64_t step, int strip) {
  GW_TRY(turn_to(step));
  step_ = step;
  const Status status = pack_shard(t, values, lane(strip));
  return status.ok() ? status : parts_[t].named(status);
}

Status PackedGather::pack_shard(std::size_t t, TensorView values, Lane& lane) {
  const Held& held = held_[t];
  if (shard_of(*parts_[t].parameter, size_, rank_).size() == 0) return {};
  const Range own = strip_of(parts_[t], size_, rank_, lane.strip);
  const bool last = lane.strip.last();
  if (own.size() > 0) GW_TRY(pack_strip(t, values, own, own_wire(t, lane)));
  return held.feedback != nullptr && last ? held.feedback->finish() : Status();
}

// `own`: elements of the parameter, all or some of the own shard's; `values` are theirs.
Status PackedGather::pack_strip(std::size_t t, TensorView values, const Range& own, ByteSpan wire) {
  const PackedPart& part = parts_[t];
  const Held& held = held_[t];
  const std::int64_t first = own.begin - shard_of(*part.parameter, size_, rank_).begin;
  const TensorView there = decoded_.tensor(Shape::vector(own.size()), values.dtype());
  if (part.runs()) {  // what the mean lacks
    GW_TRY(scaled_copy(held.mean.slice(own.begin, own.size()), -1 / share(part), there, stream()));
    GW_TRY(reduce(ReduceOp::kSum, there, values, stream()));
  }
  const bool at_once = held.feedback != nullptr && held.feedback->packs(*part.format);
  if (held.feedback != nullptr && !at_once) {
    GW_ASSIGN(values, held.feedback->correct(values, step_));
  }
  const Slice slice = part.slice(step_, rank_, stage(), own);
  const PackedPiece piece{values, first, slice, part.parameter->scale};
  GW_ASSIGN(const std::size_t wrote, at_once ? held.feedback->pack(*part.format, piece, wire)
                                             : part.format->pack(values, slice, wire, stream()));
  if (wrote != wire.size()) {
    return {Code::kInternal, format("packed %zu bytes (%zu claimed)", wrote, wire.size())};
  }
  if (held.feedback == nullptr || at_once) return {};
  GW_TRY(part.format->unpack(wire, slice, there, stream()));
  if (part.parameter->scale != 1) GW_TRY(scale(there, part.parameter->scale, stream()));
  return held.feedback->settle(0, there);
}

bool PackedGather::folds(std::size_t t) const {
  const PackedPart& part = parts_[t];
  return part.format->folds() && !part.vote && !part.feeds_back() && part.parameter->scale == 1;
}

Status PackedGather::fold(std::size_t t, std::span<const Addend> addends, std::uint64_t step,
                          int strip) {
  GW_TRY(turn_to(step));
  step_ = step;
  const PackedPart& part = parts_[t];
  Lane& to = lane(strip);
  const Range own = strip_of(parts_[t], size_, rank_, to.strip);
  const Slice slice = part.slice(step, rank_, stage(), own);
  // On the host: no format of a device folds.
  const auto wrote = part.format->fold(addends, own.size(), slice, own_wire(t, to), {});
  if (wrote.has_value()) return {};
  return part.named(wrote.error().with_context("shards by rank"));
}

Result<std::optional<Work>> PackedGather::issue(int strip) {
  Lane& own = lane(strip);
  GW_ASSIGN(Work work,
            context_.communicator.all_gather_v(bytes_of(own.send), bytes_of(own.receive),
                                               own.results.rank_bytes, context_.payload_options()));
  return std::optional<Work>(std::move(work));
}

Status PackedGather::unpack(int strip) {
  for (std::size_t t = 0; t < parts_.size(); ++t) {
    const Status status = unpack_part(t, lane(strip));
    if (!status.ok()) return parts_[t].named(status);
  }
  return {};
}

Status PackedGather::unpack_part(std::size_t t, Lane& lane) {
  const PackedPart& part = parts_[t];
  const TensorView& grad = part.parameter->grad;
  for (int r = 0; r < size_; ++r) {
    const Range elems = strip_of(parts_[t], size_, r, lane.strip);
    if (elems.size() == 0) continue;
    const TensorView result = grad.slice(elems.begin, elems.size());
    Status status = part.format->unpack(lane.results.at(lane.receive, r, t),
                                        part.slice(step_, r, stage(), elems), result, stream());
    if (!status.ok()) return status.with_context(format("result of rank %d", r));
    if (part.parameter->scale != 1) GW_TRY(scale(result, part.parameter->scale, stream()));
    if (share(part) != 1) GW_TRY(scale(result, share(part), stream()));
  }
  if (!part.runs()) return {};
  const TensorView& mean = held_[t].mean;
  GW_TRY(reduce(ReduceOp::kSum, grad, mean, stream()));
  return copy_bytes(mean.bytes(), mean.device(), grad.bytes(), grad.device(), stream());
}

std::size_t PackedGather::held_bytes() const {
  std::size_t bytes = decoded_.bytes().size();
  for (const Lane& lane : lanes_) bytes += lane.send.bytes().size() + lane.receive.bytes().size();
  return bytes;
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
