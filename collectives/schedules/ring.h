// The two walks of a ring, among any of a group's ranks.
#pragma once

#include <functional>

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

// From 0 .. length - 1 to the place of a chunk.
using ChunkPlaces = std::function<Place(int chunk)>;

// length - 1 rounds, after which this rank has chunk(place) reduced over the ring's ranks; chunks
// hold the own values before.
void add_ring_reduce_scatter(Schedule& schedule, const RingSeat& seat, const ChunkPlaces& chunk);

// length - 1 rounds, after which this rank has all chunks; chunk(place) was there before.
void add_ring_all_gather(Schedule& schedule, const RingSeat& seat, const ChunkPlaces& chunk);

}  // namespace gradwire
