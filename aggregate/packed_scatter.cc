#include "aggregate/packed_scatter.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "device/ops.h"

namespace gradwire {

PackedScatter::PackedScatter(const ExchangeContext& context, std::span<const PackedPart> parts,
                             int strips)
    : context_(context),
      parts_(parts),
      rank_(context.communicator.rank()),
      size_(context.communicator.size()) {
  for (int i = 0; i < strips; ++i) {
    Lane lane;
    lane.strip = {i, strips};
    lay_out(lane);
    lanes_.push_back(std::move(lane));
  }
}

// Each rank gets its shards from here, and gives its part of this rank's shards.
void PackedScatter::lay_out(Lane& lane) const {
  lane.sent =
      ShardLayout::of(parts_, size_, 0, lane.strip, [&](int r) { return r == rank_ ? -1 : r; });
  lane.received =
      ShardLayout::of(parts_, size_, 0, lane.strip, [&](int r) { return r == rank_ ? -1 : rank_; });
}

Status PackedScatter::turn_to(std::uint64_t step) {
  if (!turn_parts(parts_, step)) return {};
  for (Lane& lane : lanes_) {
    lay_out(lane);
    const bool fits = lane.send.bytes().size() == lane.sent.total &&
                      lane.receive.bytes().size() == lane.received.total;
    if (!fits) GW_TRY(allocate(lane));
  }
  return {};
}

bool PackedScatter::goes_in_strips(const ExchangeContext& context, const PackedPart& part) {
  if (part.vote || part.format->seam(0) < 1 || part.format->seam(1) < 1) return false;
  const auto made = make_slice_feedback(part.parameter->feedback, Shape::vector(1),
                                        placement_of(context, part), 0, context.stream());
  if (!made.has_value()) return false;
  return made.value() == nullptr || made.value()->packs(*part.format);
}

Result<std::unique_ptr<PackedScatter>> PackedScatter::open(const ExchangeContext& context,
                                                           std::span<const PackedPart> parts,
                                                           int strips) {
  std::unique_ptr<PackedScatter> scatter(new PackedScatter(context, parts, strips));
  GW_TRY(scatter->allocate());
  return scatter;
}

Status PackedScatter::allocate(Lane& lane) const {
  GW_ASSIGN(lane.send, Buffer::allocate(lane.sent.total, stream().device));
  GW_ASSIGN(lane.receive, Buffer::allocate(lane.received.total, stream().device));
  return {};
}

Status PackedScatter::allocate() {
  const Device device = stream().device;
  std::size_t vote = 0;
  for (Lane& lane : lanes_) GW_TRY(allocate(lane));
  for (const PackedPart& part : parts_) {
    const TensorView& grad = part.parameter->grad;
    const Shape own = Shape::vector(shard_of(*part.parameter, size_, rank_).size());
    const std::size_t own_bytes = static_cast<std::size_t>(own.elems()) * size_of(grad.dtype());
    Held held;
    GW_ASSIGN(held.feedback, make_slice_feedback(part.parameter->feedback, grad.shape(),
                                                 placement_of(context_, part), 0, stream()));
    GW_ASSIGN(held.sum_buffer, Buffer::allocate(own_bytes, device));
    held.sum = held.sum_buffer.tensor(own, grad.dtype());
    if (part.runs()) {
      GW_ASSIGN(held.average_buffer, Buffer::allocate(own_bytes, device));
      held.average = held.average_buffer.tensor(own, grad.dtype());
    }
    if (part.vote) vote = std::max(vote, part.format->bytes(own.elems(), 0));
    held_.push_back(std::move(held));
  }
  GW_ASSIGN(own_vote_, Buffer::allocate(vote, device));
  GW_ASSIGN(decoded_, Buffer::allocate(largest_shard_bytes(parts_, size_), device));
  return {};
}

Result<std::size_t> PackedScatter::encode(std::uint64_t step, int strip) {
  if (strip == 0) GW_TRY(turn_to(step));
  step_ = step;
  for (std::size_t t = 0; t < parts_.size(); ++t) {
    const Status status = pack(t, lane(strip));
    if (!status.ok()) return parts_[t].named(status);
  }
  return lane(strip).sent.total;
}

Result<std::optional<Work>> PackedScatter::issue(int strip) {
  if (size_ == 1) return std::optional<Work>();
  Lane& own = lane(strip);
  GW_ASSIGN(Work work, context_.communicator.all_to_all_v(
                           bytes_of(own.send), own.sent.rank_bytes, bytes_of(own.receive),
                           own.received.rank_bytes, context_.payload_options()));
  return std::optional<Work>(std::move(work));
}

// Where elements of the own shard are added up.
TensorView PackedScatter::sum_of(std::size_t t, const Range& own) const {
  const Range shard = shard_of(*parts_[t].parameter, size_, rank_);
  return held_[t].sum.slice(own.begin - shard.begin, own.size());
}

bool PackedScatter::packs_in_one_pass(std::size_t t) const {
  return held_[t].feedback != nullptr && held_[t].feedback->packs(*parts_[t].format);
}

Status PackedScatter::pack(std::size_t t, Lane& lane) {
  Held& held = held_[t];
  const TensorView& grad = parts_[t].parameter->grad;
  held.values = grad;
  if (packs_in_one_pass(t)) {
    const Range own = strip_of(parts_[t], size_, rank_, lane.strip);
    const TensorView mine = grad.slice(own.begin, own.size());
    GW_ASSIGN(held.values, held.feedback->correct_part(mine, own.begin));
  } else if (held.feedback != nullptr) {
    GW_ASSIGN(held.values, held.feedback->correct(held.values, step_));
  }
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) GW_TRY(pack_shard(t, r, lane));
  }
  return {};
}

Status PackedScatter::pack_shard(std::size_t t, int owner, Lane& lane) {
  const PackedPart& part = parts_[t];
  const Held& held = held_[t];
  const Range elems = strip_of(parts_[t], size_, owner, lane.strip);
  if (elems.size() == 0) return {};
  const ByteSpan wire = lane.sent.at(lane.send, owner, t);
  const Slice slice = part.slice(step_, rank_, 0, elems);
  const bool at_once = packs_in_one_pass(t);
  const TensorView& from = at_once ? part.parameter->grad : held.values;
  const TensorView values = from.slice(elems.begin, elems.size());
  const PackedPiece piece{values, elems.begin, slice, part.parameter->scale};
  GW_ASSIGN(const std::size_t wrote, at_once ? held.feedback->pack(*part.format, piece, wire)
                                             : part.format->pack(values, slice, wire, stream()));
  if (wrote != wire.size()) {
    return {Code::kInternal, format("packed %zu bytes (%zu claimed)", wrote, wire.size())};
  }
  if (held.feedback == nullptr || at_once) return {};
  const TensorView there = decoded_.tensor(Shape::vector(elems.size()), held.values.dtype());
  GW_TRY(part.format->unpack(wire, slice, there, stream()));
  if (part.parameter->scale != 1) GW_TRY(scale(there, part.parameter->scale, stream()));
  return held.feedback->settle(elems.begin, there);
}

std::vector<Addend> PackedScatter::addends(std::size_t t, int strip) {
  const PackedPart& part = parts_[t];
  Lane& from = lane(strip);
  const Range own = strip_of(parts_[t], size_, rank_, from.strip);
  std::vector<Addend> all;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) {
      all.push_back({held_[t].values.slice(own.begin, own.size()), {}, {}});
    } else {
      all.push_back({{}, from.received.at(from.receive, r, t), part.slice(step_, r, 0, own)});
    }
  }
  return all;
}

Result<TensorView> PackedScatter::sum(std::size_t t, int strip) {
  Held& held = held_[t];
  Lane& from = lane(strip);
  const Range own = strip_of(parts_[t], size_, rank_, from.strip);
  if (own.size() > 0) {
    for (int r = 0; r < size_; ++r) {
      const Status status = r == rank_ ? add_own(t, own, r == 0) : add_received(t, own, r, from);
      if (!status.ok()) return parts_[t].named(status);
    }
  }
  const TensorView total = sum_of(t, own);
  if (held.feedback == nullptr) return total;
  Status status = held.feedback->settle_exactly(own.begin, own.size());
  if (status.ok() && from.strip.last()) status = held.feedback->finish();
  if (status.ok() && from.strip.last() && parts_[t].runs()) status = run_average(t);
  if (!status.ok()) return parts_[t].named(status);
  return total;
}

Status PackedScatter::run_average(std::size_t t) {
  const Held& held = held_[t];
  GW_TRY(scale(held.sum, 1.0 / size_, stream()));
  GW_TRY(reduce(ReduceOp::kSum, held.sum, held.average, stream()));
  return scaled_copy(held.average, size_, held.sum, stream());
}

Status PackedScatter::add_own(std::size_t t, const Range& own, bool first) {
  const PackedPart& part = parts_[t];
  const Held& held = held_[t];
  TensorView values = held.values.slice(own.begin, own.size());
  if (part.vote) {  // one's own voice weighs as much as any other
    const ByteSpan room = own_vote_.bytes().first(part.format->bytes(own.size(), 0));
    const Slice slice = part.slice(step_, rank_, 0, own);
    GW_ASSIGN(const std::size_t wrote, part.format->pack(values, slice, room, stream()));
    values = decoded_.tensor(Shape::vector(own.size()), values.dtype());
    GW_TRY(part.format->unpack(room.first(wrote), slice, values, stream()));
  }
  const TensorView total = sum_of(t, own);
  if (!first) return reduce(ReduceOp::kSum, values, total, stream());
  return copy_bytes(values.bytes(), values.device(), total.bytes(), total.device(), stream());
}

Status PackedScatter::add_received(std::size_t t, const Range& own, int r, Lane& lane) {
  const PackedPart& part = parts_[t];
  const TensorView sum = sum_of(t, own);
  const double factor = part.parameter->scale;
  const ByteSpan wire = lane.received.at(lane.receive, r, t);
  const Slice slice = part.slice(step_, r, 0, own);
  Status status;
  if (r == 0 || factor == 1) {
    status = r == 0 ? part.format->unpack(wire, slice, sum, stream())
                    : part.format->unpack_add(wire, slice, sum, stream());
    if (status.ok() && factor != 1) status = scale(sum, factor, stream());
  } else {
    const TensorView values = decoded_.tensor(Shape::vector(own.size()), sum.dtype());
    status = part.format->unpack(wire, slice, values, stream());
    if (status.ok()) status = scale(values, factor, stream());
    if (status.ok()) status = reduce(ReduceOp::kSum, values, sum, stream());
  }
  return status.ok() ? status : status.with_context(format("shard from rank %d", r));
}

std::size_t PackedScatter::held_bytes() const {
  std::size_t bytes = own_vote_.bytes().size() + decoded_.bytes().size();
  for (const Lane& lane : lanes_) bytes += lane.send.bytes().size() + lane.receive.bytes().size();
  for (const Held& held : held_) bytes += held.sum_buffer.bytes().size();
  return bytes;
}

std::vector<NamedTensor> PackedScatter::state() {
  std::vector<NamedTensor> all;
  for (std::size_t t = 0; t < parts_.size(); ++t) {
    if (held_[t].feedback == nullptr) continue;
    const std::string& name = parts_[t].parameter->name;
    for (const NamedTensor& entry : held_[t].feedback->state()) {
      all.push_back({name + "." + entry.name, entry.tensor});
    }
    if (parts_[t].runs()) all.push_back({name + ".ef21.average", held_[t].average});
  }
  return all;
}

}  // namespace gradwire
