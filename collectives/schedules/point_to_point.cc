// One message: n elements, one round on either side. Around all ranks: one each way, n elements
// from every rank, one round.
#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"

namespace gradwire {

Schedule point_to_point_send(int rank, int size, int peer, std::int64_t elems) {
  Schedule schedule{.rank = rank, .size = size, .in_elems = elems};
  schedule.rounds.push_back({send_step(peer, in_place_of({0, elems}))});
  return schedule;
}

Schedule point_to_point_recv(int rank, int size, int peer, std::int64_t elems) {
  Schedule schedule{.rank = rank, .size = size, .out_elems = elems};
  schedule.rounds.push_back({recv_copy(peer, out_place_of({0, elems}))});
  return schedule;
}

Schedule neighbour_send_recv(int rank, int size, std::int64_t elems) {
  Schedule schedule{.rank = rank, .size = size, .in_elems = elems, .out_elems = elems};
  const Place from = in_place_of({0, elems});
  const Place to = out_place_of({0, elems});
  if (size == 1) {
    schedule.rounds.push_back({local_copy(from, to)});
  } else {
    schedule.rounds.push_back(
        {send_step(around(rank + 1, size), from), recv_copy(around(rank - 1, size), to)});
  }
  return schedule;
}

}  // namespace gradwire
