// Dissemination barrier: in round k every rank tells the one 2^k places on, so after ceil(log2 p)
// rounds it has heard, through others, from all. Empty messages, ceil(log2 p) from every rank.
// Source: Hensgen, Finkel and Manber, Int. J. Parallel Program. 1988.
#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"

namespace gradwire {

Schedule dissemination_barrier(int rank, int size) {
  Schedule schedule = in_place_schedule(rank, size, 0);
  for (int distance = 1; distance < size; distance *= 2) {
    schedule.rounds.push_back({send_step(around(rank + distance, size), {}),
                               recv_copy(around(rank - distance, size), {})});
  }
  return schedule;
}

}  // namespace gradwire
