// An in-place schedule with its input apart: a round of copies in front, cell by cell, so that it
// may be cut as before.
#include <map>
#include <utility>

#include "base/check.h"
#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"

namespace gradwire {
namespace {

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
