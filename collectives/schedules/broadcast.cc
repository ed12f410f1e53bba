// Binomial broadcast: in every round each rank that has the data gives it to one that has not, so
// the number of ranks that have it doubles. ceil(log2 p) rounds, n elements a message, (p-1) n in
// all.
//
//   p = 8, root 0     round 1   0 -> 4
//                     round 2   0 -> 2, 4 -> 6
//                     round 3   0 -> 1, 2 -> 3, 4 -> 5, 6 -> 7
//
// Counted from the root, a rank's parent is itself without its lowest set bit, and its children add
// one lower bit. Cut into segments it pipelines by itself: a rank passes a segment on while the
// next comes in.
#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"

namespace gradwire {

Schedule binomial_broadcast(int rank, int size, int root, std::int64_t elems) {
  Schedule schedule{.rank = rank, .size = size, .in_elems = elems, .out_elems = elems};
  schedule.in_place = true;
  const Place all = out_place_of({0, elems});
  const int from_root = around(rank - root, size);
  int bit = 1;
  while (bit < size && (from_root & bit) == 0) bit *= 2;
  if (from_root != 0) {
    schedule.rounds.push_back({recv_copy(around(from_root - bit + root, size), all)});
  }
  for (bit /= 2; bit > 0; bit /= 2) {
    if (from_root + bit < size) {
      schedule.rounds.push_back({send_step(around(from_root + bit + root, size), all)});
    }
  }
  return schedule;
}

}  // namespace gradwire
