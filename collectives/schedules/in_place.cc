#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"

namespace gradwire {
namespace {

using Op = Step::Op;

// Ranges that do not overlap one another.
class Ranges {
 public:
  // Ranges that overlap become one.
  void add(Range range) {
    if (range.size() == 0) return;
    auto at = ends_.lower_bound(range.begin);
    if (at != ends_.begin() && std::prev(at)->second > range.begin) --at;
    while (at != ends_.end() && at->first < range.end) {
      range = {std::min(range.begin, at->first), std::max(range.end, at->second)};
      at = ends_.erase(at);
    }
    ends_[range.begin] = range.end;
  }
  bool overlap(Range range) const {
    if (range.size() == 0) return false;
    const auto after = ends_.lower_bound(range.end);
    return after != ends_.begin() && std::prev(after)->second > range.begin;
  }
  const std::map<std::int64_t, std::int64_t>& ends() const { return ends_; }

 private:
  std::map<std::int64_t, std::int64_t> ends_;  // by begin
};

class Sharing {
 public:
  Sharing(const SharedElems& shared, bool divisible) : shared_(shared), divisible_(divisible) {}

  // Whether a place of kOut lies in shared memory, or in a range together with such places.
  bool concerns(const Place& place) const {
    const Range& range = place.range;
    if (place.buffer != BufferId::kOut || range.size() == 0) return false;
    if (!divisible_) return true;
    return range.begin < shared_.out_begin + shared_.elems && shared_.out_begin < range.end;
  }

  // Whether something of kIn is read after something else was written over it.
  bool clobbers(const Schedule& schedule) const {
    Ranges written;  // of kOut
    const auto reads = [&](const Place& from) {
      return from.buffer == BufferId::kIn && written.overlap(as_out(from.range));
    };
    const auto write = [&](const Place& to) {
      if (concerns(to)) written.add(to.range);
    };
    for (const Round& round : schedule.rounds) {
      for (const Step& step : round) {
        if (step.peer >= 0 && step.op != Op::kSend) write(step.to);
      }
      for (const Step& step : round) {
        if (step.op == Op::kSend && reads(step.from)) return true;
      }
      for (const Step& step : round) {
        if (step.peer >= 0) continue;
        if (step.op != Op::kFinish && reads(step.from)) return true;
        const bool onto_itself = step.op == Op::kCopy && step.from.buffer == BufferId::kIn &&
                                 as_out(step.from.range) == step.to.range;
        if (!onto_itself) write(step.to);
      }
    }
    return false;
  }

 private:
  Range as_out(Range in) const { return shifted(in, shared_.out_begin - shared_.in_begin); }

  SharedElems shared_;
  bool divisible_;
};

// All of [0, elems): the cells that the schedule names in its kOut, and what lies between them.
std::vector<Range> cells_of(const Schedule& schedule) {
  std::map<std::int64_t, std::int64_t> cells;
  for (const Round& round : schedule.rounds) {
    for (const Step& step : round) {
      for (const Place& place : {step.from, step.to}) {
        if (place.buffer != BufferId::kScratch && place.range.size() > 0) {
          cells[place.range.begin] = place.range.end;
        }
      }
    }
  }
  std::vector<Range> all;
  std::int64_t at = 0;
  for (const auto& [begin, end] : cells) {
    if (at < begin) all.push_back({at, begin});
    all.push_back({begin, end});
    at = end;
  }
  if (at < schedule.out_elems) all.push_back({at, schedule.out_elems});
  return all;
}

}  // namespace

Schedule in_place(const Schedule& schedule, const SharedElems& shared) {
  const Sharing sharing(shared, schedule.divisible);
  if (!sharing.clobbers(schedule)) return schedule;
  const std::int64_t shift = schedule.scratch_elems;
  const auto moved_to = [shift](Range range) { return scratch_place_of(shifted(range, shift)); };
  Schedule result = schedule;
  result.scratch_elems += schedule.out_elems;
  Ranges moved;
  for (Round& round : result.rounds) {
    for (Step& step : round) {
      for (Place* place : {&step.from, &step.to}) {
        if (!sharing.concerns(*place)) continue;
        moved.add(place->range);
        *place = moved_to(place->range);
      }
    }
  }
  for (const auto& [begin, end] : moved.ends()) {
    result.rounds.back().push_back(local_copy(moved_to({begin, end}), out_place_of({begin, end})));
  }
  return result;
}

// A round of copies in front, cell by cell, so that it may be cut as before.
Schedule out_of_place(Schedule schedule) {
  GW_CHECK(schedule.in_place && schedule.in_elems == schedule.out_elems);
  if (!schedule.stretches.empty()) {
    schedule.in_place = false;
    for (Schedule& stretch : schedule.stretches) stretch = out_of_place(std::move(stretch));
    return schedule;
  }
  const std::vector<Range> cells =
      schedule.divisible ? cells_of(schedule) : std::vector<Range>{{0, schedule.out_elems}};
  Round copies;
  for (const Range cell : cells)
    copies.push_back(local_copy(in_place_of(cell), out_place_of(cell)));
  for (Round& round : schedule.rounds) {
    for (Step& step : round) {  // kIn was another name for kOut
      if (step.from.buffer == BufferId::kIn) step.from.buffer = BufferId::kOut;
      if (step.to.buffer == BufferId::kIn) step.to.buffer = BufferId::kOut;
    }
  }
  schedule.in_place = false;
  schedule.rounds.insert(schedule.rounds.begin(), std::move(copies));
  return schedule;
}

}  // namespace gradwire
