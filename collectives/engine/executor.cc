#include "collectives/engine/executor.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "collectives/engine/fold.h"
#include "collectives/engine/round_actions.h"
#include "device/ops.h"

namespace gradwire {
namespace {

using Op = Step::Op;

constexpr std::size_t kAlignment = 64;  // bytes
// What a slot's scratch may hold of the messages of a round before segments become smaller, and how
// small they become.
constexpr std::size_t kMostWaiting = 4 << 20;
constexpr std::size_t kLeastSegment = 16 << 10;

bool is_message(const Step& step) { return step.peer >= 0; }
// Both places of a step have this length.
std::int64_t elems_of(const Step& step) {
  return step.op == Op::kSend ? step.from.range.size() : step.to.range.size();
}

}  // namespace

Execution::Execution(Schedule schedule, const Operands& operands, Route route,
                     Segmentation segmentation)
    : schedule_(std::move(schedule)),
      operands_(operands),
      route_(std::move(route)),
      segmentation_(segmentation) {
  GW_CHECK(segmentation_.slots > 0 && segmentation_.slots <= 128);
  plan();
}

// Equal on all ranks, as is all that it depends on.
Cuts Execution::cuts_of(std::int64_t elems) const {
  const auto width = static_cast<std::int64_t>(size_of(operands_.dtype));
  const std::size_t small =
      std::min({kLeastSegment, segmentation_.segment_bytes, segmentation_.least_segment_bytes});
  // What is below comes to one part for small cells, too, by divisions that cost time.
  if (!schedule_.divisible || static_cast<std::size_t>(elems * width) <= small)
    return {elems, std::max<std::int64_t>(1, elems), false};
  const std::size_t share = kMostWaiting / static_cast<std::size_t>(schedule_.fan_in);
  const std::size_t bytes = std::min(segmentation_.segment_bytes, std::max(share, kLeastSegment));
  const auto most = static_cast<std::int64_t>(bytes) / width;
  const auto least = static_cast<std::int64_t>(segmentation_.least_segment_bytes) / width;
  // One for every slot, if they are worth it.
  const std::int64_t even = (elems + segmentation_.slots - 1) / segmentation_.slots;
  const std::int64_t per_segment = std::max<std::int64_t>(1, std::min(most, std::max(least, even)));
  if (!segmentation_.ends_short) return {elems, per_segment, false};
  // A little longer: the usual length, some segments and no more, has no part of nothing then.
  return {elems, per_segment + static_cast<std::int64_t>(kAlignment) / width, true};
}

// Room for the largest cut of a cell.
std::size_t Execution::reserve(std::int64_t elems, std::size_t& used) const {
  const std::size_t offset = used;
  const auto largest = static_cast<std::size_t>(cuts_of(elems)[0].size());
  used += (largest * size_of(operands_.dtype) + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

// kIn of a schedule in place is another name for kOut.
BufferId Execution::home_of(BufferId buffer) const {
  return buffer == BufferId::kIn && schedule_.in_place ? BufferId::kOut : buffer;
}

// Whether such cells lie in slots, not where the caller has them.
bool Execution::in_slots(BufferId home) const {
  if (home == BufferId::kScratch) return true;
  if (operands_.staging == nullptr) return false;
  return !(home == BufferId::kIn ? operands_.staging->in : operands_.staging->out).empty();
}

// Ranges that may nest lie where they say in their buffer, which a slot has as a whole.
void Execution::lay_out_whole_buffers() {
  for (const BufferId buffer : {BufferId::kScratch, BufferId::kIn, BufferId::kOut}) {
    if (!in_slots(buffer)) continue;
    const auto elems_in = [buffer](const Schedule& part) {
      return buffer == BufferId::kScratch ? part.scratch_elems
             : buffer == BufferId::kIn    ? part.in_elems
                                          : part.out_elems;
    };
    std::int64_t most = schedule_.stretches.empty() ? elems_in(schedule_) : 0;
    for (const Schedule& stretch : schedule_.stretches) most = std::max(most, elems_in(stretch));
    regions_[static_cast<std::size_t>(buffer)] = reserve(most, arrival_offset_);
  }
}

void Execution::plan() {
  if (!schedule_.divisible) lay_out_whole_buffers();
  if (schedule_.stretches.empty()) {
    slot_bytes_ = plan(schedule_);
    return;
  }
  Begin begin;
  for (const Schedule& stretch : schedule_.stretches) {
    begins_.push_back(begin);
    begin.in += stretch.in_elems;
    begin.out += stretch.out_elems;
  }
  for (const Schedule& stretch : schedule_.stretches) {
    slot_bytes_ = std::max(slot_bytes_, plan(stretch));
  }
  cuts_ = static_cast<int>(begins_.size());
}

// Bytes of scratch that a slot needs for it.
std::size_t Execution::plan(const Schedule& part) {
  std::size_t used = arrival_offset_;
  std::size_t arrivals = 0;
  const auto know = [&](const Place& place) {
    const Place cell{home_of(place.buffer), place.range};
    if (!schedule_.divisible || !in_slots(cell.buffer)) return;
    const auto same = [&](const Spot& spot) { return spot.cell == cell; };
    if (std::ranges::any_of(spots_, same)) return;
    spots_.push_back({cell, reserve(cell.range.size(), used)});
  };
  for (const Round& round : part.rounds) {
    std::size_t here = 0;
    for (const Step& step : round) {
      cuts_ = std::max(cuts_, cuts_of(elems_of(step)).count());
      if (step.op != Op::kSend) know(step.to);
      if (step.op == Op::kSend || !is_message(step)) know(step.from);
      if (step.op == Op::kRecvReduce) (void)reserve(elems_of(step), here);
    }
    arrivals = std::max(arrivals, here);
  }
  arrival_offset_ = std::max(arrival_offset_, used);
  return arrival_offset_ + arrivals;
}

const Schedule& Execution::part_of(const Slot& slot) const {
  return begins_.empty() ? schedule_ : schedule_.stretches[static_cast<std::size_t>(slot.cut)];
}

Status Execution::start(ScratchPool& pool) {
  started_ = true;
  // What is on a device waits for it, though it may have nothing to do itself.
  if (operands_.staging) cuts_ = std::max(cuts_, 1);
  slots_.resize(static_cast<std::size_t>(std::min(cuts_, segmentation_.slots)));
  const Device device = operands_.scratch_device;
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    slots_[s].cut = static_cast<int>(s);
    GW_ASSIGN(slots_[s].scratch, pool.take(slot_bytes_, device));
    if (operands_.staging == nullptr) continue;
    // Before anything is enqueued: what cannot be followed must not be under way.
    GW_ASSIGN(slots_[s].point, operands_.staging->lane->copies().make_point());
  }
  open_slots_ = slots_.size();
  return {};
}

bool Execution::takes_part(const Step& step, const Slot& slot) const {
  return !begins_.empty() || slot.cut < cuts_of(elems_of(step)).count();
}

Range Execution::cut_of(std::int64_t elems, const Slot& slot) const {
  return cuts_of(elems)[begins_.empty() ? slot.cut : 0];
}

// Cells have spots of their own; ranges that may nest lie where they say.
std::size_t Execution::slot_offset(const Place& place) const {
  if (!schedule_.divisible) {
    return regions_[static_cast<std::size_t>(place.buffer)] +
           static_cast<std::size_t>(place.range.begin) * size_of(operands_.dtype);
  }
  const auto same = [&](const Spot& spot) { return spot.cell == place; };
  const auto found = std::ranges::find_if(spots_, same);
  GW_CHECK(found != spots_.end());
  return found->offset;
}

// The slot's cut of a cell.
TensorView Execution::view(const Place& place, const Slot& slot) const {
  const std::int64_t elems = place.range.size();
  const Range part = cut_of(elems, slot);
  const std::size_t width = size_of(operands_.dtype);
  const Shape shape = Shape::vector(part.size());
  const BufferId home = home_of(place.buffer);
  if (in_slots(home)) {
    std::byte* base =
        elems == 0 ? nullptr : slot.scratch.bytes().data() + slot_offset({home, place.range});
    return {base, shape, operands_.dtype, operands_.scratch_device};
  }
  // A schedule never writes to kIn, so its constness is only set aside for the common type.
  const bool input = home == BufferId::kIn;
  std::byte* base = input ? const_cast<std::byte*>(operands_.in) : operands_.out;
  const Begin begin = begins_.empty() ? Begin{} : begins_[static_cast<std::size_t>(slot.cut)];
  const std::int64_t first = (input ? begin.in : begin.out) + place.range.begin + part.begin;
  if (elems > 0) base += static_cast<std::size_t>(first) * width;
  return {base, shape, operands_.dtype, input ? operands_.in_device : operands_.out_device};
}

// Where a message that is to be reduced waits: behind the earlier ones of its round.
TensorView Execution::arrival(const Step& step, const Slot& slot) const {
  std::size_t offset = arrival_offset_;
  for (const Step& other : part_of(slot).rounds[slot.round]) {
    if (&other == &step) break;
    if (other.op == Op::kRecvReduce) (void)reserve(elems_of(other), offset);
  }
  const std::int64_t elems = elems_of(step);
  std::byte* base = elems == 0 ? nullptr : slot.scratch.bytes().data() + offset;
  const Shape shape = Shape::vector(cut_of(elems, slot).size());
  return {base, shape, operands_.dtype, operands_.scratch_device};
}

Result<bool> Execution::advance(Transport& transport, ScratchPool& pool) {
  if (!started_) {
    if (!route_.turn.here()) return false;
    GW_ASSIGN(const bool ready, device_is_ready());
    if (!ready) return false;
    GW_TRY(start(pool));
  }
  bool moved = false;
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s].finished) continue;
    const auto channel = route_.first_channel + static_cast<std::uint32_t>(s);
    GW_ASSIGN(const bool slot_moved, advance_slot(slots_[s], channel, transport));
    moved = moved || slot_moved;
  }
  if (route_.turn.order && all_posted()) route_.turn.pass_on();
  return moved;
}

// Of a schedule of one round: whether every slot has posted its last cut.
bool Execution::all_posted() const {
  return std::ranges::all_of(slots_, [&](const Slot& slot) {
    const bool last = slot.cut + segmentation_.slots >= cuts_;
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
    if (slot.round == part_of(slot).rounds.size()) {
      if (operands_.staging && !slot.left) {
        GW_TRY(leave(slot));
        moved = true;
        continue;
      }
      slot.entered = slot.left = false;
      slot.round = 0;
      if (slot.cut + segmentation_.slots >= cuts_) {
        slot.finished = true;
        --open_slots_;
        return true;
      }
      slot.cut += segmentation_.slots;
      if (operands_.staging || part_of(slot).rounds.empty()) continue;
    }
    if (!slot.ticket) {
      GW_TRY(post_round(slot, channel, transport));
      moved = true;
    }
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
  for (const Step& step : part_of(slot).rounds[slot.round]) {
    if (!is_message(step) || !takes_part(step, slot)) continue;
    const TensorView data = step.op == Op::kSend         ? view(step.from, slot)
                            : step.op == Op::kRecvReduce ? arrival(step, slot)
                                                         : view(step.to, slot);
    const auto kind = step.op == Op::kSend ? Transfer::Kind::kSend : Transfer::Kind::kRecv;
    const int peer = (*route_.group)[static_cast<std::size_t>(step.peer)];
    slot.batch.push_back({kind, peer, tag, data.bytes(), data.device()});
    if (step.op == Op::kSend) bytes_sent_ += data.bytes().size();
  }
  if (slot.batch.empty()) return {};
  slot.arrived.assign(slot.batch.size(), 0);
  GW_ASSIGN(slot.ticket, transport.post(slot.batch, operands_.stream));
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
  std::vector<const Step*> steps = steps_after_messages(part_of(slot).rounds[slot.round]);
  std::erase_if(steps, [&](const Step* step) { return !takes_part(*step, slot); });
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
  const int of = operands_.mean_of > 0 ? operands_.mean_of : schedule_.size;
  return fold(mean ? ReduceOp::kSum : operands_.op, sources, to,
              scaled ? std::optional(1.0 / of) : std::nullopt, operands_.stream);
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
    for (const Step& step : part_of({}).rounds.front()) {
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

}  // namespace gradwire
