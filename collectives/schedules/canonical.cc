// The canonical order: every element is summed as a left fold over ranks, ((v0 + v1) + v2) + ...,
// whatever the number of elements, so the bits do not change with the size or the place of a tensor
// and equal those of one process that adds the same values one after another. The fold is one
// reduction: f16 and bf16 are rounded once in all.
//
//   round 1   everybody sends chunk j to rank j, which keeps them apart, folds them in rank order
//   round 2   and sends its finished chunk to everybody (all-reduce) or to the root (reduce)
//
// Elements sent: n - |own chunk| in round 1, (p-1) |own chunk| in round 2 of an all-reduce, so
// 2n(p-1)/p when p divides n, as the ring; but p - 1 messages a round and (p-1)/p n elements of
// scratch.
// direct: everybody sends all of its n elements to everybody, who fold them: one round, (p-1) n
// elements from every rank.
#include <algorithm>
#include <utility>

#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"

namespace gradwire {
namespace {

// Peers in the order rank + 1, rank + 2, ...: no two ranks send to the same one first.
template <typename Visit>
void for_each_peer(int rank, int size, const Visit& visit) {
  for (int t = 1; t < size; ++t) visit(around(rank + t, size));
}

// Where the values of the others for the own chunk of `length` wait.
Place waiting(int rank, std::int64_t length, int r) {
  return scratch_place_of(row(length, r < rank ? r : r - 1));
}

// Everybody's chunk j goes to rank j, and waits there.
template <typename Chunk>
Round scatter_round(int rank, int size, const Chunk& chunk, std::int64_t length) {
  Round round;
  for_each_peer(rank, size, [&](int peer) { round.push_back(send_step(peer, chunk(peer))); });
  for_each_peer(rank, size,
                [&](int peer) { round.push_back(recv_copy(peer, waiting(rank, length, peer))); });
  return round;
}

// The fold of own and waiting values at `sum`, which holds rank 0's.
void add_fold(Round& round, int rank, int size, Place own, Place sum) {
  const std::int64_t length = own.range.size();
  for (int r = 1; r < size; ++r) {
    round.push_back(local_reduce(r == rank ? own : waiting(rank, length, r), sum));
  }
  if (size > 1) round.push_back(finish_step(sum));
}

// One round: everybody has the fold of all ranks' chunk(rank) where its own was.
template <typename Chunk>
Schedule folded_chunks(int rank, int size, std::int64_t elems, const Chunk& chunk) {
  Schedule schedule = in_place_schedule(rank, size, elems);
  if (size == 1) return schedule;
  const Place own = chunk(rank);
  const std::int64_t length = own.range.size();
  schedule.fan_in = size - 1;
  schedule.scratch_elems = (size - 1) * length;
  Round round = scatter_round(rank, size, chunk, length);
  const Place sum = rank == 0 ? own : waiting(rank, length, 0);
  add_fold(round, rank, size, own, sum);
  if (rank != 0) round.push_back(local_copy(sum, own));
  schedule.rounds.push_back(std::move(round));
  return schedule;
}

}  // namespace

Schedule canonical_all_reduce(int rank, int size, std::int64_t elems) {
  const auto chunk = [=](int c) { return out_place_of(piece(elems, size, c)); };
  Schedule schedule = folded_chunks(rank, size, elems, chunk);
  Round gather;
  for_each_peer(rank, size, [&](int peer) { gather.push_back(send_step(peer, chunk(rank))); });
  for_each_peer(rank, size, [&](int peer) { gather.push_back(recv_copy(peer, chunk(peer))); });
  if (size > 1) schedule.rounds.push_back(std::move(gather));
  return schedule;
}

Schedule direct_all_reduce(int rank, int size, std::int64_t elems) {
  return folded_chunks(rank, size, elems, [=](int) { return out_place_of({0, elems}); });
}

Schedule canonical_reduce_scatter(int rank, Counts counts) {
  const int size = static_cast<int>(counts.size());
  const std::vector<Range> rows = rows_of(counts);
  const auto in_row = [&](int r) { return in_place_of(rows[static_cast<std::size_t>(r)]); };
  const Place own = in_row(rank);
  const std::int64_t length = own.range.size();
  const Place out = out_place_of({0, length});
  Schedule schedule{.rank = rank, .size = size, .in_elems = rows.back().end, .out_elems = length};
  schedule.fan_in = std::max(1, size - 1);
  schedule.scratch_elems = (size - 1) * length;
  Round round = scatter_round(rank, size, in_row, length);
  if (rank == 0) round.push_back(local_copy(own, out));
  const Place sum = rank == 0 ? out : waiting(rank, length, 0);
  add_fold(round, rank, size, own, sum);
  if (rank != 0) round.push_back(local_copy(sum, out));
  schedule.rounds.push_back(std::move(round));
  return schedule;
}

Schedule canonical_reduce(int rank, int size, int root, std::int64_t elems) {
  Schedule schedule{.rank = rank, .size = size, .in_elems = elems};
  if (rank == root) schedule.out_elems = elems;
  const auto chunk = [=](int c) { return in_place_of(piece(elems, size, c)); };
  const auto finished = [=](int c) { return out_place_of(piece(elems, size, c)); };
  const Place own = chunk(rank);
  const std::int64_t length = own.range.size();
  schedule.fan_in = std::max(1, size - 1);
  // Rank 0's values wait where the sum grows, on rank 0 itself too.
  Place sum = waiting(rank, length, 0);
  if (rank == 0) sum = rank == root ? finished(0) : scratch_place_of(row(length, size - 1));
  schedule.scratch_elems = (rank == 0 && rank != root ? size : size - 1) * length;
  Round scatter = scatter_round(rank, size, chunk, length);
  if (rank == 0) scatter.push_back(local_copy(own, sum));
  add_fold(scatter, rank, size, own, sum);
  Round gather;
  if (rank != root) {
    gather.push_back(send_step(root, sum));
  } else {
    if (rank != 0) scatter.push_back(local_copy(sum, finished(rank)));
    for_each_peer(rank, size, [&](int peer) { gather.push_back(recv_copy(peer, finished(peer))); });
  }
  schedule.rounds = {std::move(scatter), std::move(gather)};
  return schedule;
}

}  // namespace gradwire
