// The two walks of a ring, among any of a group's ranks.
#pragma once

#include "collectives/schedules/steps.h"
#include "gradwire/schedule.h"

namespace gradwire {

// This rank's place in a ring of `length` ranks, and its neighbours' group ranks.
struct RingSeat {
  int place = 0;
  int length = 1;
  int next = 0;
  int prev = 0;
};

inline RingSeat ring_seat(int rank, int size) {
  return {rank, size, around(rank + 1, size), around(rank - 1, size)};
}

// length - 1 rounds, after which this rank has chunk(place) reduced over the ring's ranks. chunk:
// from 0 .. length - 1 to a place that holds the own values.
template <typename Chunk>
void add_ring_reduce_scatter(Schedule& schedule, const RingSeat& seat, const Chunk& chunk) {
  for (int t = 1; t < seat.length; ++t) {
    schedule.rounds.push_back(
        {send_step(seat.next, chunk(around(seat.place - t, seat.length))),
         recv_reduce(seat.prev, chunk(around(seat.place - t - 1, seat.length)))});
  }
}

// length - 1 rounds, after which this rank has all chunks; chunk(place) was there before.
template <typename Chunk>
void add_ring_all_gather(Schedule& schedule, const RingSeat& seat, const Chunk& chunk) {
  for (int t = 0; t < seat.length - 1; ++t) {
    schedule.rounds.push_back(
        {send_step(seat.next, chunk(around(seat.place - t, seat.length))),
         recv_copy(seat.prev, chunk(around(seat.place - t - 1, seat.length)))});
  }
}

}  // namespace gradwire
