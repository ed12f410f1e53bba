// What an Execution has to do with a device that holds its operands (staging.h).
#include <algorithm>
#include <utility>

#include "collectives/engine/executor.h"

namespace gradwire {

// Whether the caller's work on the device is done. Not even memory is taken before that: the device
// may keep whoever asks for some, or for its own, waiting until then.
Result<bool> Execution::device_is_ready() const {
  if (operands_.staging == nullptr) return true;
  return operands_.staging->ready->passed();
}

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

// Calls copy(pieces, elems, where they are here) for the slot's cut of each staged cell.
template <typename Copy>
Status Execution::each_staged(const std::vector<Place>& cells, Slot& slot, const Copy& copy) const {
  const Staging& staging = *operands_.staging;
  for (const Place& cell : cells) {
    if (!layout_->in_slots(cell.buffer)) continue;
    if (!layout_->takes_part(cell.range.size(), slot.cut)) continue;
    const DevicePieces& pieces = cell.buffer == BufferId::kIn ? staging.in : staging.out;
    const ByteSpan here = view(cell, slot).bytes();
    staging.lane->count(here.size());
    slot.awaits_point = true;
    GW_TRY(copy(pieces, callers_elems(cell, slot), here.data()));
  }
  return {};
}

// Nothing is enqueued on the device before the caller's work there is done, so that a slot's memory
// can be had back soon whatever the caller's stream waits for.
Status Execution::enter(Slot& slot) {
  slot.entered = true;
  const std::size_t width = size_of(layout_->dtype());
  const Stream stream = operands_.staging->lane->copies().to_host();
  const Status copied = each_staged(
      touched(slot).read, slot, [&](const DevicePieces& pieces, Range elems, std::byte* here) {
        return pieces.copy_out(elems, width, stream.device, here, stream);
      });
  return await_copies(copied, slot, stream);
}

Status Execution::leave(Slot& slot) {
  slot.left = true;
  const std::size_t width = size_of(layout_->dtype());
  const Stream stream = operands_.staging->lane->copies().to_device();
  const Status copied = each_staged(
      touched(slot).written, slot, [&](const DevicePieces& pieces, Range elems, std::byte* here) {
        return pieces.copy_in(elems, width, here, stream.device, stream);
      });
  return await_copies(copied, slot, stream);
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
  slot.adrift = !recorded.ok();
  return recorded;
}

bool Execution::polls() const {
  if (operands_.staging == nullptr) return false;
  if (!started_) return true;
  return std::ranges::any_of(slots_, [](const Slot& slot) {
    return !slot.finished && (slot.awaits_point || !slot.entered);
  });
}

// Whether the device no longer touches the slot's memory, or that of the caller because of it. Work
// that has failed has ended.
bool Execution::settled_on_device(Slot& slot) {
  if (slot.adrift) return false;
  if (!slot.awaits_point) return true;
  const Result<bool> passed = slot.point->passed();
  slot.awaits_point = passed.has_value() && !passed.value();
  return !slot.awaits_point;
}

}  // namespace gradwire
