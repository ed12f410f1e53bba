// Recursive doubling all-reduce: in round k ranks whose numbers differ in bit k exchange all they
// have summed, so that after log2 p rounds everybody has the sum of all. n elements a message, log2
// p of them: the fewest rounds, for messages whose latency is what counts.
//
// Where p is no power of two, q the largest below it, the first 2(p - q) ranks pair up before: the
// even one hands its values to the odd one and gets the result in the end, two more rounds.
//
// Both partners combine in the same order, the lower one's values first, so that all ranks end with
// the same bits. Source: Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 2005.
#include <bit>

#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"

namespace gradwire {

Schedule recursive_doubling_all_reduce(int rank, int size, std::int64_t elems) {
  Schedule schedule = in_place_schedule(rank, size, elems);
  const Place all = out_place_of({0, elems});
  const Place sum = scratch_place_of({0, elems});
  const int most = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  const int folded = size - most;  // pairs
  const bool paired = rank < 2 * folded;
  if (paired && rank % 2 == 0) {
    schedule.rounds.push_back({send_step(rank + 1, all)});
    schedule.rounds.push_back({recv_copy(rank + 1, all)});
    return schedule;
  }
  if (paired) schedule.rounds.push_back({recv_reduce(rank - 1, all)});
  const int place = paired ? rank / 2 : rank - folded;
  for (int bit = 1; bit < most; bit *= 2) {
    const int other = place ^ bit;
    const int peer = other < folded ? 2 * other + 1 : other + folded;
    const bool lower = place < other;
    const Place result = lower ? all : sum;
    Round round{send_step(peer, all), lower ? recv_reduce(peer, all) : recv_copy(peer, sum)};
    if (!lower) round.push_back(local_reduce(all, sum));
    if (2 * bit == most) round.push_back(finish_step(result));
    if (!lower) round.push_back(local_copy(sum, all));
    if (!lower) schedule.scratch_elems = elems;
    schedule.rounds.push_back(round);
  }
  if (paired) schedule.rounds.push_back({send_step(rank - 1, all)});
  return schedule;
}

}  // namespace gradwire
