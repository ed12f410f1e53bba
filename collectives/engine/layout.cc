#include "collectives/engine/layout.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "collectives/schedules/round_actions.h"

namespace gradwire {
namespace {

using Op = Step::Op;

constexpr std::size_t kAlignment = 64;  // bytes
// What a slot's scratch may hold of the messages of a round before segments become smaller, and how
// small they become.
constexpr std::size_t kMostWaiting = 4 << 20;
constexpr std::size_t kLeastSegment = 16 << 10;

std::size_t place_of(int cut) { return static_cast<std::size_t>(cut); }

}  // namespace

Layout::Layout(Schedule schedule, DType dtype, Segmentation segmentation, StagedTensors staged)
    : schedule_(std::move(schedule)), dtype_(dtype), segmentation_(segmentation), staged_(staged) {
  GW_CHECK(segmentation_.slots > 0 && segmentation_.slots <= 128);
  if (!schedule_.divisible) place_whole_buffers();
  if (schedule_.stretches.empty()) {
    slot_bytes_ = place_cells(schedule_);
    order_actions(schedule_);
    return;
  }
  Begin begin;
  for (const Schedule& stretch : schedule_.stretches) {
    begins_.push_back(begin);
    begin.in += stretch.in_elems;
    begin.out += stretch.out_elems;
    order_actions(stretch);
  }
  for (const Schedule& stretch : schedule_.stretches) {
    slot_bytes_ = std::max(slot_bytes_, place_cells(stretch));
  }
  cuts_ = static_cast<int>(begins_.size());
}

// Equal on all ranks, as is all that it depends on.
Cuts Layout::cuts_of(std::int64_t elems) const {
  const auto width = static_cast<std::int64_t>(size_of(dtype_));
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
std::size_t Layout::reserve(std::int64_t elems, std::size_t& used) const {
  const std::size_t offset = used;
  const auto largest = static_cast<std::size_t>(cuts_of(elems)[0].size());
  used += (largest * size_of(dtype_) + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

BufferId Layout::home_of(BufferId buffer) const {
  return buffer == BufferId::kIn && schedule_.in_place ? BufferId::kOut : buffer;
}

bool Layout::in_slots(BufferId home) const {
  if (home == BufferId::kScratch) return true;
  return home == BufferId::kIn ? staged_.in : staged_.out;
}

// Ranges that may nest lie where they say in their buffer, which a slot has as a whole.
void Layout::place_whole_buffers() {
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

// Bytes of scratch that a slot needs for it.
std::size_t Layout::place_cells(const Schedule& part) {
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
      if (step.op == Op::kSend || step.peer < 0) know(step.from);
      if (step.op == Op::kRecvReduce) (void)reserve(elems_of(step), here);
    }
    arrivals = std::max(arrivals, here);
  }
  arrival_offset_ = std::max(arrival_offset_, used);
  return arrival_offset_ + arrivals;
}

void Layout::order_actions(const Schedule& part) {
  auto& rounds = actions_.emplace_back();
  rounds.reserve(part.rounds.size());
  for (const Round& round : part.rounds) rounds.push_back(steps_after_messages(round));
}

const Schedule& Layout::part(int cut) const {
  return begins_.empty() ? schedule_ : schedule_.stretches[place_of(cut)];
}

const std::vector<const Step*>& Layout::actions(int cut, std::size_t round) const {
  return actions_[begins_.empty() ? 0 : place_of(cut)][round];
}

Layout::Begin Layout::begin(int cut) const {
  return begins_.empty() ? Begin{} : begins_[place_of(cut)];
}

bool Layout::takes_part(std::int64_t elems, int cut) const {
  return !begins_.empty() || cut == 0 || cut < cuts_of(elems).count();
}

Range Layout::cut_of(std::int64_t elems, int cut) const {
  return cuts_of(elems)[begins_.empty() ? cut : 0];
}

// Cells have spots of their own; ranges that may nest lie where they say.
std::size_t Layout::offset_of(const Place& place) const {
  if (!schedule_.divisible) {
    return regions_[static_cast<std::size_t>(place.buffer)] +
           static_cast<std::size_t>(place.range.begin) * size_of(dtype_);
  }
  const auto same = [&](const Spot& spot) { return spot.cell == place; };
  const auto found = std::ranges::find_if(spots_, same);
  GW_CHECK(found != spots_.end());
  return found->offset;
}

std::size_t Layout::arrival_of(const Step& step, int cut, std::size_t round) const {
  std::size_t offset = arrival_offset_;
  for (const Step& other : part(cut).rounds[round]) {
    if (&other == &step) break;
    if (other.op == Op::kRecvReduce) (void)reserve(elems_of(other), offset);
  }
  return offset;
}

std::shared_ptr<const Layout> lay_out(Schedule schedule, bool apart, const SharedElems& shared,
                                      DType dtype, Segmentation segmentation,
                                      std::int64_t segment_bytes, StagedTensors staged) {
  if (schedule.in_place && apart) {
    schedule = out_of_place(std::move(schedule));
  } else if (!schedule.in_place && shared.elems > 0) {
    schedule = in_place(schedule, shared);
  }
  if (segment_bytes > 0) {
    segmentation.segment_bytes = segmentation.least_segment_bytes =
        std::min(segmentation.segment_bytes, static_cast<std::size_t>(segment_bytes));
  }
  return std::make_shared<const Layout>(std::move(schedule), dtype, segmentation, staged);
}

}  // namespace gradwire
