#include "collectives/engine/executor.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "collectives/engine/fold.h"
#include "collectives/schedules/round_actions.h"
#include "device/ops.h"

namespace gradwire {

namespace {

using Op = Step::Op;

// A turn ends with the round in which so much was combined: some 50 us, for which a small operation
// waits at most.
constexpr std::size_t kCombinedInATurn = 256 << 10;
// Bytes of a reduction that are worth another thread.
constexpr std::size_t kLeastShare = 64 << 10;

bool is_message(const Step& step) { return step.peer >= 0; }

}  // namespace

Execution::Execution(std::shared_ptr<const Layout> layout, const Operands& operands, Route route)
    : layout_(std::move(layout)),
      operands_(operands),
      route_(std::move(route)),
      cuts_(layout_->cuts()),
      single_(operands_.staging == nullptr && cuts_ == 1 && layout_->is_message()) {}

Status Execution::start(ScratchPool& pool) {
  started_ = true;
  // What is on a device waits for it, though it may have nothing to do itself.
  if (operands_.staging) cuts_ = std::max(cuts_, 1);
  slots_.resize(static_cast<std::size_t>(std::min(cuts_, layout_->slots())));
  const Device device = operands_.scratch_device;
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    slots_[s].cut = static_cast<int>(s);
    GW_ASSIGN(slots_[s].scratch, pool.take(layout_->slot_bytes(), device));
    if (operands_.staging == nullptr) continue;
    // Before anything is enqueued: what cannot be followed must not be under way.
    GW_ASSIGN(slots_[s].point, operands_.staging->lane->copies().make_point());
  }
  open_slots_ = slots_.size();
  return {};
}

// The slot's cut of a cell.
TensorView Execution::view(const Place& place, const Slot& slot) const {
  const Layout& layout = *layout_;
  const std::int64_t elems = place.range.size();
  const Range part = layout.cut_of(elems, slot.cut);
  const Shape shape = Shape::vector(part.size());
  const BufferId home = layout.home_of(place.buffer);
  if (layout.in_slots(home)) {
    std::byte* base = nullptr;
    if (elems > 0) base = slot.scratch.bytes().data() + layout.offset_of({home, place.range});
    return {base, shape, layout.dtype(), operands_.scratch_device};
  }
  // A schedule never writes to kIn, so its constness is only set aside for the common type.
  const bool input = home == BufferId::kIn;
  std::byte* base = input ? const_cast<std::byte*>(operands_.in) : operands_.out;
  const Layout::Begin begin = layout.begin(slot.cut);
  const std::int64_t first = (input ? begin.in : begin.out) + place.range.begin + part.begin;
  if (elems > 0) base += static_cast<std::size_t>(first) * size_of(layout.dtype());
  return {base, shape, layout.dtype(), input ? operands_.in_device : operands_.out_device};
}

// Where a message that is to be reduced waits.
TensorView Execution::arrival(const Step& step, const Slot& slot) const {
  const std::int64_t elems = Layout::elems_of(step);
  std::byte* base = nullptr;
  if (elems > 0) {
    base = slot.scratch.bytes().data() + layout_->arrival_of(step, slot.cut, slot.round);
  }
  const Shape shape = Shape::vector(layout_->cut_of(elems, slot.cut).size());
  return {base, shape, layout_->dtype(), operands_.scratch_device};
}

Result<bool> Execution::advance(Transport& transport, ScratchPool& pool) {
  if (!started_) {
    if (!route_.turn.here()) return false;
    // Not even memory is taken before the caller's work on the device is done: the device may keep
    // a thread that allocates waiting until then.
    GW_ASSIGN(const bool ready, operands_.staging ? operands_.staging->ready->passed() : true);
    if (!ready) return false;
    GW_TRY(start(pool));
  }
  bool moved = false;
  combined_ = 0;
  has_more_ = false;
  const std::size_t first = first_slot_;
  for (std::size_t k = 0; k < slots_.size() && !has_more_; ++k) {
    const std::size_t s = (first + k) % slots_.size();
    if (slots_[s].finished) continue;
    const auto channel = route_.first_channel + static_cast<std::uint32_t>(s);
    GW_ASSIGN(const bool slot_moved, advance_slot(slots_[s], channel, transport));
    moved = moved || slot_moved;
    has_more_ = combined_ >= kCombinedInATurn;
    if (has_more_) first_slot_ = (s + 1) % slots_.size();
  }
  if (route_.turn.order && all_posted()) route_.turn.pass_on();
  return moved;
}

// Of a schedule of one round: whether every slot has posted its last cut.
bool Execution::all_posted() const {
  return std::ranges::all_of(slots_, [&](const Slot& slot) {
    const bool last = slot.cut + layout_->slots() >= cuts_;
    return slot.finished || (last && (slot.ticket || slot.round > 0));
  });
}

Result<bool> Execution::advance_slot(Slot& slot, std::uint32_t channel, Transport& transport) {
  bool moved = false;
  while (true) {
    if (operands_.staging) {
      GW_ASSIGN(const bool goes_on, follow_device(slot));
      if (!goes_on) return moved;
    }
    if (slot.round == layout_->part(slot.cut).rounds.size()) {
      if (operands_.staging && !slot.left) {
        GW_TRY(leave(slot));
        moved = true;
        continue;
      }
      const bool last = slot.cut + layout_->slots() >= cuts_;
      if (last && operands_.staging && open_slots_ == 1 && !filled_) {
        GW_TRY(fill(slot));
        continue;
      }
      slot.entered = slot.left = false;
      slot.round = 0;
      if (last) {
        slot.finished = true;
        --open_slots_;
        return true;
      }
      slot.cut += layout_->slots();
      if (operands_.staging || layout_->part(slot.cut).rounds.empty()) continue;
    }
    if (!slot.ticket) {
      GW_TRY(post_round(slot, channel, transport));
      moved = true;
    }
    if (combined_ >= kCombinedInATurn) return true;  // what it combined is on its way
    if (slot.ticket) {
      for (std::size_t i = 0; i < slot.batch.size(); ++i) {
        slot.arrived[i] = transport.received(*slot.ticket, i);
      }
      const std::optional<Status> outcome = transport.poll(*slot.ticket);
      if (!outcome) return moved;
      slot.ticket.reset();
      GW_TRY(*outcome);
      GW_TRY(check_lengths(slot));
    }
    GW_TRY(finish_round(slot));
    ++slot.round;
    moved = true;
  }
}

// Leaves no ticket when the round has no message for this cut.
Status Execution::post_round(Slot& slot, std::uint32_t channel, Transport& transport) {
  slot.batch.clear();
  GW_ASSIGN(const Tag tag, Tag::make(route_.communicator, route_.operation, channel));
  for (const Step& step : layout_->part(slot.cut).rounds[slot.round]) {
    if (!is_message(step) || !layout_->takes_part(step, slot.cut)) continue;
    const TensorView data = step.op == Op::kSend         ? view(step.from, slot)
                            : step.op == Op::kRecvReduce ? arrival(step, slot)
                                                         : view(step.to, slot);
    const auto kind = step.op == Op::kSend ? Transfer::Kind::kSend : Transfer::Kind::kRecv;
    const int peer = (*route_.group)[static_cast<std::size_t>(step.peer)];
    slot.batch.push_back({kind, peer, tag, data.bytes(), data.device(), operands_.queue});
    if (step.op == Op::kSend) bytes_sent_ += data.bytes().size();
  }
  if (slot.batch.empty()) return {};
  slot.arrived.assign(slot.batch.size(), 0);
  GW_ASSIGN(slot.ticket, transport.post(slot.batch));
  return {};
}

Status Execution::check_lengths(const Slot& slot) const {
  for (std::size_t i = 0; i < slot.batch.size(); ++i) {
    const Transfer& transfer = slot.batch[i];
    if (transfer.kind == Transfer::Kind::kSend || slot.arrived[i] == transfer.data.size()) continue;
    return {Code::kRankMismatch, format("rank %d sent %zu bytes (expected %zu)", transfer.peer,
                                        slot.arrived[i], transfer.data.size())};
  }
  return {};
}

// What is to be done with the round's messages, then its local steps.
Status Execution::finish_round(Slot& slot) {
  std::vector<const Step*>& steps = slot.actions;
  steps = layout_->actions(slot.cut, slot.round);
  std::erase_if(steps, [&](const Step* step) { return !layout_->takes_part(*step, slot.cut); });
  for (std::size_t i = 0; i < steps.size();) {
    const auto rest = std::span(steps).subspan(i);
    const auto action = rest.first(action_length(rest));
    GW_TRY(action[0]->op == Op::kCopy ? copy(*action[0], slot) : combine(action, slot));
    i += action.size();
  }
  return {};
}

// One reduction: everything that is added to one place, and its finish.
Status Execution::combine(std::span<const Step* const> action, const Slot& slot) {
  const TensorView to = view(action[0]->to, slot);
  if (to.bytes().empty()) return {};
  std::vector<ConstTensorView> sources;
  for (const Step* step : action) {
    if (step->op == Op::kRecvReduce) sources.emplace_back(arrival(*step, slot));
    if (step->op == Op::kReduce) sources.emplace_back(view(step->from, slot));
  }
  const bool mean = operands_.op == ReduceOp::kMean;
  const bool scaled = mean && action.back()->op == Op::kFinish;
  const int of = operands_.mean_of > 0 ? operands_.mean_of : layout_->schedule().size;
  combined_ += to.bytes().size() * sources.size();
  return fold_with_workers(sources, to, scaled ? std::optional(1.0 / of) : std::nullopt);
}

// Every element on its own: how the tensors are divided does not show. In memory of the host:
// what reduces is staged.
Status Execution::fold_with_workers(std::span<const ConstTensorView> sources, TensorView to,
                                    std::optional<double> factor) const {
  const ReduceOp op = operands_.op == ReduceOp::kMean ? ReduceOp::kSum : operands_.op;
  const std::size_t most = to.bytes().size() / kLeastShare;
  if (operands_.workers == nullptr || most < 2) {
    return fold(op, sources, to, factor);
  }
  const auto shares =
      static_cast<int>(std::min(most, static_cast<std::size_t>(operands_.workers->threads())));
  std::vector<Status> outcomes(static_cast<std::size_t>(shares));
  operands_.workers->run(outcomes.size(), [&](std::size_t i, int) {
    const Range share = piece(to.elems(), shares, static_cast<int>(i));
    std::vector<ConstTensorView> its;
    for (const ConstTensorView& source : sources) {
      its.push_back(source.slice(share.begin, share.size()));
    }
    outcomes[i] = fold(op, its, to.slice(share.begin, share.size()), factor);
  });
  for (const Status& outcome : outcomes) GW_TRY(outcome);
  return {};
}

Status Execution::copy(const Step& step, Slot& slot) {
  const TensorView to = view(step.to, slot);
  const TensorView from = view(step.from, slot);
  // The caller's in and out may overlap on purpose.
  if (to.bytes().empty() || from.data() == to.data()) return {};
  GW_TRY(copy_bytes(from.bytes(), from.device(), to.bytes(), to.device(), operands_.stream));
  const bool later =
      from.device().space == MemorySpace::kCuda || to.device().space == MemorySpace::kCuda;
  return later ? await_point(slot, operands_.stream) : Status();
}

void Execution::cancel(Transport& transport) {
  for (Slot& slot : slots_) {
    if (slot.ticket) transport.cancel(*slot.ticket);
  }
}

bool Execution::settled(Transport& transport) {
  bool all = true;
  for (Slot& slot : slots_) {
    if (slot.ticket && transport.poll(*slot.ticket)) slot.ticket.reset();
    const bool on_device = settled_on_device(slot);
    all = all && !slot.ticket && on_device;
  }
  return all;
}

void Execution::release(ScratchPool& pool) {
  for (Slot& slot : slots_) pool.give_back(std::move(slot.scratch));
}

std::vector<int> Execution::waiting_for(const Transport& transport) const {
  std::vector<int> receives;
  std::vector<int> sends;
  if (!started_ && !route_.turn.here()) {  // then it waits for whom the one before it waits for
    for (const Step& step : layout_->part(0).rounds.front()) {
      if (is_message(step)) sends.push_back((*route_.group)[static_cast<std::size_t>(step.peer)]);
    }
  }
  for (const Slot& slot : slots_) {
    if (!slot.ticket) continue;
    for (std::size_t i = 0; i < slot.batch.size(); ++i) {
      const Transfer& transfer = slot.batch[i];
      if (transfer.kind == Transfer::Kind::kSend) {
        sends.push_back(transfer.peer);
      } else if (transfer.data.empty() || transport.received(*slot.ticket, i) == 0) {
        receives.push_back(transfer.peer);
      }
    }
  }
  // A send may wait only because its round's receive does, so it counts where there is no receive.
  std::vector<int>& ranks = receives.empty() ? sends : receives;
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()),
              ranks.end());  // clang 14 lacks the ranges form
  return ranks;
}

// What an Execution has to do with a device that holds its operands (staging.h).

// Whether the slot's next round may run.
Result<bool> Execution::follow_device(Slot& slot) {
  if (slot.awaits_point) {
    GW_ASSIGN(const bool passed, slot.point->passed());
    slot.awaits_point = !passed;
    if (!passed) return false;
  }
  if (slot.entered) return true;
  GW_TRY(enter(slot));
  return !slot.awaits_point;
}

TouchedCells Execution::touched(const Slot& slot) const {
  return touched_cells(layout_->part(slot.cut), layout_->schedule().in_place,
                       layout_->schedule().divisible);
}

// The slot's cut of a cell, in elements of the caller's tensor.
Range Execution::callers_elems(const Place& cell, const Slot& slot) const {
  const Range part = layout_->cut_of(cell.range.size(), slot.cut);
  const Layout::Begin begin = layout_->begin(slot.cut);
  const std::int64_t first =
      (cell.buffer == BufferId::kIn ? begin.in : begin.out) + cell.range.begin;
  return {first + part.begin, first + part.end};
}

// Calls copy(pieces, elems, where they are here) for the slot's cut of each staged cell, which
// enqueues on the stream. Nothing is enqueued before the caller's work on the device is done, so
// that a slot's memory can be had back soon whatever the caller's stream waits for.
template <typename Copy>
Status Execution::each_staged(const std::vector<Place>& cells, Slot& slot, const Stream& stream,
                              const Copy& copy) const {
  const Staging& staging = *operands_.staging;
  Status copied;
  for (const Place& cell : cells) {
    if (!layout_->in_slots(cell.buffer) || !copied.ok()) continue;
    if (!layout_->takes_part(cell.range.size(), slot.cut)) continue;
    const DevicePieces& pieces = cell.buffer == BufferId::kIn ? staging.in : staging.out;
    const ByteSpan here = view(cell, slot).bytes();
    staging.lane->count(here.size());
    slot.awaits_point = true;
    copied = copy(pieces, callers_elems(cell, slot), here.data());
  }
  return await_copies(copied, slot, stream);
}

Status Execution::enter(Slot& slot) {
  slot.entered = true;
  const Stream stream = operands_.staging->lane->copies().to_host();
  const auto copy = [&](const DevicePieces& pieces, Range elems, std::byte* here) {
    return pieces.copy_out(elems, size_of(layout_->dtype()), stream.device, here, stream);
  };
  return each_staged(touched(slot).read, slot, stream, copy);
}

Status Execution::leave(Slot& slot) {
  slot.left = true;
  const Stream stream = operands_.staging->lane->copies().to_device();
  const auto copy = [&](const DevicePieces& pieces, Range elems, std::byte* here) {
    return pieces.copy_in(elems, size_of(layout_->dtype()), here, stream.device, stream);
  };
  return each_staged(touched(slot).written, slot, stream, copy);
}

// Behind all cuts, of which none has anything left to read there.
Status Execution::fill(Slot& slot) {
  filled_ = true;
  const Staging& staging = *operands_.staging;
  if (staging.neutral.empty()) return {};
  slot.awaits_point = true;
  const Stream stream = staging.lane->copies().to_device();
  return await_copies(fill_neutral(operands_.op, staging.neutral, stream), slot, stream);
}

// Those before one that failed are under way.
Status Execution::await_copies(const Status& copied, Slot& slot, const Stream& stream) {
  const Status recorded = slot.awaits_point ? await_point(slot, stream) : Status();
  return copied.ok() ? recorded : copied;
}

// The slot goes on when all that is enqueued on `stream` now has run.
Status Execution::await_point(Slot& slot, const Stream& stream) {
  slot.awaits_point = true;
  const Status recorded = slot.point->record(stream);
  slot.untracked = !recorded.ok();
  return recorded;
}

// The device may keep any slot waiting, of which the transport hears nothing.
Awaited Execution::awaited() const {
  Awaited awaited{.messages = true, .nothing = has_more_};
  if (operands_.staging == nullptr) return awaited;
  awaited.device = !started_ || std::ranges::any_of(slots_, [](const Slot& slot) {
    return !slot.finished && (slot.awaits_point || !slot.entered);
  });
  return awaited;
}

// Whether the device no longer touches the slot's memory, or that of the caller because of it. Work
// that has failed has ended.
bool Execution::settled_on_device(Slot& slot) {
  if (slot.untracked) return false;
  if (!slot.awaits_point) return true;
  const Result<bool> passed = slot.point->passed();
  slot.awaits_point = passed.has_value() && !passed.value();
  return !slot.awaits_point;
}

}  // namespace gradwire
