// Exclusive scan: rank r ends with the reduction of ranks 0 .. r - 1, rank 0 with what it had. No
// kFinish: there is no mean of a part.
//
//   linear               every rank waits for the sum of those below, adds its own and passes it
//                        on: p - 1 rounds one after another, n elements from every rank but the
//                        last, a left fold in rank order. Cut into segments it pipelines
//   recursive doubling   everybody gets its left neighbour's values, then in round k what the rank
//                        2^k places to the left has summed so far: 1 + ceil(log2(p-1)) rounds, n
//                        elements a message. Source: Hillis and Steele, Commun. ACM 1986
#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"

namespace gradwire {

// The own values are set aside: kIn may be kOut, where the sum of those below arrives.
Schedule linear_exclusive_scan(int rank, int size, std::int64_t elems) {
  Schedule schedule{.rank = rank, .size = size, .in_elems = elems, .out_elems = elems};
  const Place in = in_place_of({0, elems});
  const Place out = out_place_of({0, elems});
  const Place own = scratch_place_of({0, elems});
  const Place below = scratch_place_of({elems, 2 * elems});
  const bool last = rank == size - 1;
  if (rank == 0) {
    if (!last) schedule.rounds.push_back({send_step(1, in)});
    return schedule;
  }
  if (last) {
    schedule.rounds.push_back({recv_copy(rank - 1, out)});
    return schedule;
  }
  schedule.scratch_elems = 2 * elems;
  schedule.rounds.push_back({recv_copy(rank - 1, below), local_copy(in, own),
                             local_copy(below, out), local_reduce(own, below)});
  schedule.rounds.push_back({send_step(rank + 1, below)});
  return schedule;
}

Schedule doubling_exclusive_scan(int rank, int size, std::int64_t elems) {
  Schedule schedule{.rank = rank, .size = size, .in_elems = elems, .out_elems = elems};
  const Place in = in_place_of({0, elems});
  const Place out = out_place_of({0, elems});
  const Place arriving = scratch_place_of({0, elems});
  if (rank > 0) schedule.scratch_elems = elems;
  Round first;
  if (rank + 1 < size) first.push_back(send_step(rank + 1, in));
  if (rank > 0) {
    first.push_back(recv_copy(rank - 1, arriving));
    first.push_back(local_copy(arriving, out));
  }
  schedule.rounds.push_back(first);
  // Rank r's kOut holds the sum of the `distance` ranks below it, or of all of them.
  for (int distance = 1; distance < size - 1; distance *= 2) {
    Round round;
    if (rank > 0 && rank + distance < size) round.push_back(send_step(rank + distance, out));
    if (rank - distance > 0) round.push_back(recv_reduce(rank - distance, out));
    if (!round.empty()) schedule.rounds.push_back(round);
  }
  return schedule;
}

}  // namespace gradwire
