// The ring. Ranks stand in a circle; each talks to its two neighbours only, and all links work at
// once.
//
//   reduce-scatter   chunk c starts one place after its owner, rank c, and walks the ring once,
//                    every rank adding its own values: p - 1 rounds, all chunks but the own
//   all-gather       a finished chunk walks the ring once more, copied at every rank: p - 1 rounds,
//                    all chunks but that of rank r + 1
//   all-reduce       both: 2(p-1) rounds, 2n - |chunk r| - |chunk r + 1| elements from rank r, that
//                    is 2n(p-1)/p where p divides n, which is the least that any algorithm can send
//
// A chunk's values are added in the order in which it walks, so the order depends on the chunk's
// index alone. Source: Patarasuk and Yuan, J. Parallel Distrib. Comput. 2009.
#include "collectives/schedules/steps.h"

#include <algorithm>
#include <utility>

#include "collectives/schedules/schedules.h"

namespace gradwire {

void add_ring_reduce_scatter(Schedule& schedule, const RingSeat& seat, const ChunkPlaces& chunk) {
  for (int t = 1; t < seat.length; ++t) {
    schedule.rounds.push_back(
        {send_step(seat.next, chunk(around(seat.place - t, seat.length))),
         recv_reduce(seat.prev, chunk(around(seat.place - t - 1, seat.length)))});
  }
}

void add_ring_all_gather(Schedule& schedule, const RingSeat& seat, const ChunkPlaces& chunk) {
  for (int t = 0; t < seat.length - 1; ++t) {
    schedule.rounds.push_back(
        {send_step(seat.next, chunk(around(seat.place - t, seat.length))),
         recv_copy(seat.prev, chunk(around(seat.place - t - 1, seat.length)))});
  }
}

Schedule ring_all_reduce(int rank, int size, std::int64_t elems) {
  Schedule schedule = in_place_schedule(rank, size, elems);
  const RingSeat seat = ring_seat(rank, size);
  const auto chunk = [=](int c) { return out_place_of(piece(elems, size, c)); };
  add_ring_reduce_scatter(schedule, seat, chunk);
  if (size > 1) schedule.rounds.back().push_back(finish_step(chunk(rank)));
  add_ring_all_gather(schedule, seat, chunk);
  return schedule;
}

// Here the input must survive, so partial sums travel through two scratch rows that take turns: one
// is being sent while the next arrives; rows of different lengths are different cells and have each
// scratch of its own. The own row waits in the output for the last of them.
Schedule ring_reduce_scatter(int rank, Counts counts) {
  const int size = static_cast<int>(counts.size());
  const std::vector<Range> rows = rows_of(counts);
  const auto row_at = [&](int r) { return rows[static_cast<std::size_t>(around(r, size))]; };
  Schedule schedule{
      .rank = rank, .size = size, .in_elems = rows.back().end, .out_elems = row_at(rank).size()};
  const RingSeat seat = ring_seat(rank, size);
  const Place out = out_place_of({0, schedule.out_elems});
  schedule.rounds.push_back({local_copy(in_place_of(row_at(rank)), out)});
  const bool alike = std::ranges::count(counts, counts[0]) == size;
  Place partial = in_place_of(row_at(rank - 1));
  for (int t = 2; t <= size; ++t) {
    const Range row = row_at(rank - t);
    Round round{send_step(seat.next, partial)};
    if (t == size) {
      round.push_back(recv_reduce(seat.prev, out));
      round.push_back(finish_step(out));
    } else {
      const std::int64_t begin = alike ? t % 2 * row.size() : schedule.scratch_elems;
      partial = scratch_place_of(shifted({0, row.size()}, begin));
      schedule.scratch_elems = std::max(schedule.scratch_elems, partial.range.end);
      round.push_back(recv_copy(seat.prev, partial));
      round.push_back(local_reduce(in_place_of(row), partial));
    }
    schedule.rounds.push_back(std::move(round));
  }
  return schedule;
}

Schedule ring_all_gather(int rank, Counts counts) {
  const int size = static_cast<int>(counts.size());
  const std::vector<Range> rows = rows_of(counts);
  const Range own = rows[static_cast<std::size_t>(rank)];
  Schedule schedule{
      .rank = rank, .size = size, .in_elems = own.size(), .out_elems = rows.back().end};
  const auto row_place = [&](int r) { return out_place_of(rows[static_cast<std::size_t>(r)]); };
  schedule.rounds.push_back({local_copy(in_place_of({0, own.size()}), row_place(rank))});
  add_ring_all_gather(schedule, ring_seat(rank, size), row_place);
  return schedule;
}

}  // namespace gradwire
