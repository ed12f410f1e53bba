// Chain broadcast: every rank receives from the one before it, counted from the root, and passes on
// to the next. p - 1 rounds one after another, but each rank sends n elements once alone and, cut
// into k segments, all links work at once: (p - 2 + k)(alpha + n beta / k).
#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"

namespace gradwire {

Schedule chain_broadcast(int rank, int size, int root, std::int64_t elems) {
  Schedule schedule = in_place_schedule(rank, size, elems);
  const Place all = out_place_of({0, elems});
  const int place = around(rank - root, size);
  if (place > 0) schedule.rounds.push_back({recv_copy(around(rank - 1, size), all)});
  if (place < size - 1) schedule.rounds.push_back({send_step(around(rank + 1, size), all)});
  return schedule;
}

}  // namespace gradwire
