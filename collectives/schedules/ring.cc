// The ring. Ranks stand in a circle; each talks to its two neighbours only, and all links work at
// once.
//
//   reduce-scatter   chunk c starts one place after its owner and walks the ring once, every rank
//                    adding its own values: p - 1 rounds, n(p-1)/p elements from every rank
//   all-gather       a finished chunk walks the ring once more, copied at every rank: the same
//   all-reduce       both: 2(p-1) rounds, 2n(p-1)/p elements, which is the least that any
//                    algorithm can send. Exactly 2n - |chunk r+1| - |chunk r+2| from rank r.
//
// A chunk's values are added in the order in which it walks, so the order depends on the chunk's
// index alone. Source: Patarasuk and Yuan, J. Parallel Distrib. Comput. 2009.
#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"

namespace gradwire {

Schedule ring_all_reduce(int rank, int size, std::int64_t elems) {
  Schedule schedule{.rank = rank, .size = size, .in_elems = elems, .out_elems = elems};
  schedule.in_place = true;
  const int next = around(rank + 1, size);
  const int prev = around(rank - 1, size);
  const auto chunk = [=](int c) { return out_place_of(piece(elems, size, around(c, size))); };
  for (int t = 0; t < size - 1; ++t) {
    schedule.rounds.push_back(
        {send_step(next, chunk(rank - t)), recv_reduce(prev, chunk(rank - t - 1))});
  }
  if (size > 1) schedule.rounds.back().push_back(finish_step(chunk(rank + 1)));
  for (int t = 0; t < size - 1; ++t) {
    schedule.rounds.push_back(
        {send_step(next, chunk(rank + 1 - t)), recv_copy(prev, chunk(rank - t))});
  }
  return schedule;
}

// Here the input must survive, so partial sums travel through two scratch rows that take turns: one
// is being sent while the next arrives.
Schedule ring_reduce_scatter(int rank, int size, std::int64_t elems) {
  Schedule schedule{.rank = rank, .size = size, .in_elems = size * elems, .out_elems = elems};
  const int next = around(rank + 1, size);
  const int prev = around(rank - 1, size);
  const Place out = out_place_of({0, elems});
  const auto own = [=](int c) { return in_place_of(row(elems, around(c, size))); };
  if (size == 1) schedule.rounds.push_back({local_copy(own(0), out)});
  if (size > 2) schedule.scratch_elems = 2 * elems;
  Place partial = own(rank - 1);
  for (int t = 0; t < size - 1; ++t) {
    const Place arriving = t == size - 2 ? out : scratch_place_of(row(elems, t % 2));
    schedule.rounds.push_back({send_step(next, partial), recv_copy(prev, arriving),
                               local_reduce(own(rank - 2 - t), arriving)});
    partial = arriving;
  }
  if (size > 1) schedule.rounds.back().push_back(finish_step(out));
  return schedule;
}

Schedule ring_all_gather_v(int rank, std::span<const std::int64_t> elems) {
  const int size = static_cast<int>(elems.size());
  const std::vector<Range> rows = rows_of(elems);
  const Range own = rows[static_cast<std::size_t>(rank)];
  Schedule schedule{
      .rank = rank, .size = size, .in_elems = own.size(), .out_elems = rows.back().end};
  const int next = around(rank + 1, size);
  const int prev = around(rank - 1, size);
  const Place in = in_place_of({0, own.size()});
  const auto block = [&](int r) {
    return out_place_of(rows[static_cast<std::size_t>(around(r, size))]);
  };
  for (int t = 0; t < size - 1; ++t) {
    schedule.rounds.push_back(
        {send_step(next, t == 0 ? in : block(rank - t)), recv_copy(prev, block(rank - t - 1))});
  }
  if (size == 1) schedule.rounds.emplace_back();
  schedule.rounds.front().push_back(local_copy(in, block(rank)));
  return schedule;
}

Schedule ring_all_gather(int rank, int size, std::int64_t elems) {
  return ring_all_gather_v(rank, std::vector<std::int64_t>(static_cast<std::size_t>(size), elems));
}

}  // namespace gradwire
