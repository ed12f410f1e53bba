// Bruck's algorithms: ceil(log2 p) rounds for any p, bought with local copies.
//
//   all-gather   rows are collected in the order r, r + 1, r + 2, ... around the circle: in round k
//                a rank gets the first 2^k (or what is missing) of those that the rank 2^k places
//                on has. All rows but the own arrive, once each; in the end they are turned into
//                rank order
//   all-to-all   the row for the rank j places on travels along the bits of j: in round k all rows
//                whose j has bit k go 2^k places on, packed into one message. About n p / 2
//                elements a round where pairwise exchange sends n a round, so for short rows
//
// Source: Bruck, Ho, Kipnis, Upfal and Weathersby, IEEE Trans. Parallel Distrib. Syst. 1997.
#include <algorithm>
#include <utility>

#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"

namespace gradwire {

Schedule bruck_all_gather(int rank, Counts counts) {
  const int size = static_cast<int>(counts.size());
  std::vector<std::int64_t> turned(counts.begin(), counts.end());
  std::rotate(turned.begin(), turned.begin() + rank, turned.end());
  const std::vector<Range> rows = rows_of(turned);
  const std::int64_t total = rows.back().end;
  Schedule schedule{.rank = rank,
                    .size = size,
                    .in_elems = turned[0],
                    .out_elems = total,
                    .scratch_elems = total,
                    .divisible = false};
  schedule.rounds.push_back({local_copy(in_place_of(rows[0]), scratch_place_of(rows[0]))});
  for (int have = 1; have < size; have *= 2) {
    const int more = std::min(have, size - have);
    schedule.rounds.push_back(
        {send_step(around(rank - have, size), scratch_place_of(stretch_of(rows, 0, more))),
         recv_copy(around(rank + have, size),
                   scratch_place_of(stretch_of(rows, have, have + more)))});
  }
  const std::int64_t upper = stretch_of(rows, 0, size - rank).end;  // rows rank .. size - 1
  schedule.rounds.back().push_back(
      local_copy(scratch_place_of({0, upper}), out_place_of({total - upper, total})));
  if (rank > 0) {
    schedule.rounds.back().push_back(
        local_copy(scratch_place_of({upper, total}), out_place_of({0, total - upper})));
  }
  return schedule;
}

namespace {

// Scratch of an all-to-all: the rows by how far they have to go, then the outgoing and the
// incoming message.
struct Packing {
  int size;
  std::int64_t elems;
  int most = 0;  // rows of a message
  Place row_at(int j) const { return scratch_place_of(row(elems, j)); }
  Place outgoing(int k) const { return scratch_place_of(row(elems, size + k)); }
  Place incoming(int k) const { return scratch_place_of(row(elems, size + most + k)); }
};

std::vector<int> rows_with_bit(int bit, int size) {
  std::vector<int> rows;
  for (int j = bit; j < size; ++j) {
    if ((j & bit) != 0) rows.push_back(j);
  }
  return rows;
}

Place joined(Place first, std::size_t count) {
  first.range.end = first.range.begin + first.range.size() * static_cast<std::int64_t>(count);
  return first;
}

void pack(Round& round, const Packing& packing, int bit) {
  int k = 0;
  for (const int j : rows_with_bit(bit, packing.size)) {
    round.push_back(local_copy(packing.row_at(j), packing.outgoing(k++)));
  }
}

}  // namespace

Schedule bruck_all_to_all(int rank, int size, std::int64_t elems) {
  Schedule schedule{
      .rank = rank, .size = size, .in_elems = size * elems, .out_elems = size * elems};
  schedule.divisible = false;
  Packing packing{size, elems};
  for (int bit = 1; bit < size; bit *= 2) {
    packing.most = std::max(packing.most, static_cast<int>(rows_with_bit(bit, size).size()));
  }
  schedule.scratch_elems = (size + 2 * packing.most) * elems;
  Round turn;
  for (int j = 0; j < size; ++j) {
    turn.push_back(local_copy(in_place_of(row(elems, around(rank + j, size))), packing.row_at(j)));
  }
  pack(turn, packing, 1);
  schedule.rounds.push_back(std::move(turn));
  for (int bit = 1; bit < size; bit *= 2) {
    const std::vector<int> moved = rows_with_bit(bit, size);
    Round round{send_step(around(rank + bit, size), joined(packing.outgoing(0), moved.size())),
                recv_copy(around(rank - bit, size), joined(packing.incoming(0), moved.size()))};
    int k = 0;
    for (const int j : moved) {
      round.push_back(local_copy(packing.incoming(k++), packing.row_at(j)));
    }
    if (2 * bit < size) pack(round, packing, 2 * bit);
    schedule.rounds.push_back(std::move(round));
  }
  for (int j = 0; j < size; ++j) {
    schedule.rounds.back().push_back(
        local_copy(packing.row_at(j), out_place_of(row(elems, around(rank - j, size)))));
  }
  return schedule;
}

}  // namespace gradwire
