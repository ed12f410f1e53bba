#include "collectives/engine/staging.h"

#include <algorithm>
#include <utility>

#include "collectives/schedules/round_actions.h"
#include "device/ops.h"

namespace gradwire {
namespace {

using Op = Step::Op;

std::vector<Place> merged(std::vector<Place> places) {
  std::ranges::sort(places, [](const Place& a, const Place& b) {
    return a.buffer != b.buffer ? a.buffer < b.buffer : a.range.begin < b.range.begin;
  });
  std::vector<Place> all;
  for (const Place& place : places) {
    const bool joins = !all.empty() && all.back().buffer == place.buffer &&
                       place.range.begin <= all.back().range.end;
    if (!joins) {
      all.push_back(place);
    } else {
      all.back().range.end = std::max(all.back().range.end, place.range.end);
    }
  }
  return all;
}

}  // namespace

// Steps in the order in which the part comes to them.
TouchedCells touched_cells(const Schedule& part, bool in_place, bool divisible) {
  TouchedCells cells;
  const auto note = [&](std::vector<Place>& list, Place place, const auto& wanted) {
    if (place.buffer == BufferId::kScratch || place.range.size() == 0) return;
    if (in_place) place.buffer = BufferId::kOut;
    if (wanted(place) && std::ranges::find(list, place) == list.end()) list.push_back(place);
  };
  const auto read = [&](const Place& place) {
    note(cells.read, place, [&](const Place& home) {
      return std::ranges::none_of(cells.written, [&](const Place& written) {
        return written.buffer == home.buffer && written.range.begin <= home.range.begin &&
               home.range.end <= written.range.end;
      });
    });
  };
  const auto touch = [&](const Step& step) {
    if (step.op == Op::kReduce || step.op == Op::kCopy) read(step.from);
    if (is_reduction(step)) read(step.to);
    note(cells.written, step.to, [](const Place&) { return true; });
  };
  for (const Round& round : part.rounds) {
    for (const Step& step : round) {
      if (step.op == Op::kSend) read(step.from);
    }
    for (const Step& step : round) {
      if (step.peer >= 0 && step.op != Op::kSend) touch(step);
    }
    for (const Step& step : round) {
      if (step.peer < 0) touch(step);
    }
  }
  if (divisible) return cells;
  return {merged(std::move(cells.read)), merged(std::move(cells.written))};
}

Result<std::shared_ptr<StagingLane>> StagingLanes::of(Device device) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find_if(lanes_, [&](const auto& lane) { return lane->device() == device; });
  if (found != lanes_.end()) return *found;
  GW_ASSIGN(std::unique_ptr<CopyLane> copies, CopyLane::create(device));
  lanes_.push_back(std::make_shared<StagingLane>(device, std::move(copies)));
  if (lanes_.size() == 1) first_.store(device, std::memory_order_release);
  return lanes_.back();
}

std::uint64_t StagingLanes::bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  for (const auto& lane : lanes_) bytes += lane->bytes();
  return bytes;
}

std::vector<int> StagingLanes::ordinals() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> ordinals;
  for (const auto& lane : lanes_) ordinals.push_back(lane->device().ordinal);
  std::ranges::sort(ordinals);
  return ordinals;
}

void DevicePieces::add(std::byte* data, std::int64_t elems) {
  if (elems == 0) return;
  const std::int64_t begin = pieces_.empty() ? 0 : pieces_.back().elems.end;
  pieces_.push_back({data, {begin, begin + elems}});
}

// copy(where a piece's part of `elems` is, how many bytes it is, where it lies among `elems`)
template <typename Copy>
Status DevicePieces::each(Range elems, std::size_t width, const Copy& copy) const {
  const auto first = std::ranges::upper_bound(pieces_, elems.begin, {},
                                              [](const Piece& piece) { return piece.elems.end; });
  for (auto piece = first; piece != pieces_.end() && piece->elems.begin < elems.end; ++piece) {
    const std::int64_t begin = std::max(elems.begin, piece->elems.begin);
    const std::int64_t end = std::min(elems.end, piece->elems.end);
    const auto in_piece = static_cast<std::size_t>(begin - piece->elems.begin) * width;
    const auto in_all = static_cast<std::size_t>(begin - elems.begin) * width;
    GW_TRY(copy(piece->data + in_piece, static_cast<std::size_t>(end - begin) * width, in_all));
  }
  return {};
}

Status DevicePieces::copy_out(Range elems, std::size_t width, Device device, std::byte* host,
                              const Stream& stream) const {
  return each(elems, width, [&](const std::byte* there, std::size_t bytes, std::size_t at) {
    return copy_bytes({there, bytes}, device, {host + at, bytes}, Device{}, stream);
  });
}

Status DevicePieces::copy_in(Range elems, std::size_t width, const std::byte* host, Device device,
                             const Stream& stream) const {
  return each(elems, width, [&](std::byte* there, std::size_t bytes, std::size_t at) {
    return copy_bytes({host + at, bytes}, Device{}, {there, bytes}, device, stream);
  });
}

}  // namespace gradwire
