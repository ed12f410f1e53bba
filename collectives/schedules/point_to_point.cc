// One message: n elements, one round on either side.
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

}  // namespace gradwire
