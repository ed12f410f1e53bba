// The canonical order: every element is summed as a left fold over ranks, ((v0 + v1) + v2) + ...,
// whatever the number of elements, so the bits do not change with the size or the place of a tensor
// and equal those of one process that adds the same values one after another.
//
//   round 1   everybody sends chunk j to rank j, which keeps them apart, folds them in rank order
//   round 2   and sends its finished chunk to everybody (all-reduce only)
//
// Elements sent: n - |own chunk| in round 1, (p-1) |own chunk| in round 2, so 2n(p-1)/p when p
// divides n, as the ring; but p - 1 messages a round and (p-1)/p n elements of scratch.
#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"

namespace gradwire {
namespace {

// Peers in the order rank + 1, rank + 2, ...: no two ranks send to the same one first.
template <typename Visit>
void for_each_peer(int rank, int size, const Visit& visit) {
  for (int t = 1; t < size; ++t) visit(around(rank + t, size));
}

}  // namespace

Schedule canonical_all_reduce(int rank, int size, std::int64_t elems) {
  Schedule schedule{.rank = rank, .size = size, .in_elems = elems, .out_elems = elems};
  schedule.in_place = true;
  if (size == 1) return schedule;
  const auto chunk = [=](int c) { return out_place_of(piece(elems, size, c)); };
  const Place own = chunk(rank);
  const std::int64_t length = own.range.size();
  schedule.scratch_elems = (size - 1) * length;
  // The values of rank r for the own chunk: in place for the own, else in scratch.
  const auto values = [=](int r) {
    return r == rank ? own : scratch_place_of(row(length, r < rank ? r : r - 1));
  };
  Round scatter;
  for_each_peer(rank, size, [&](int peer) { scatter.push_back(send_step(peer, chunk(peer))); });
  for_each_peer(rank, size, [&](int peer) { scatter.push_back(recv_copy(peer, values(peer))); });
  const Place fold = values(0);
  for (int r = 1; r < size; ++r) scatter.push_back(local_reduce(values(r), fold));
  if (rank != 0) scatter.push_back(local_copy(fold, own));
  scatter.push_back(finish_step(own));
  Round gather;
  for_each_peer(rank, size, [&](int peer) { gather.push_back(send_step(peer, own)); });
  for_each_peer(rank, size, [&](int peer) { gather.push_back(recv_copy(peer, chunk(peer))); });
  schedule.rounds = {std::move(scatter), std::move(gather)};
  return schedule;
}

Schedule canonical_reduce_scatter(int rank, int size, std::int64_t elems) {
  Schedule schedule{.rank = rank, .size = size, .in_elems = size * elems, .out_elems = elems};
  const Place out = out_place_of({0, elems});
  const auto in_row = [=](int r) { return in_place_of(row(elems, r)); };
  // Rank 0's values arrive in the output, where the fold grows; the others wait in scratch.
  const auto values = [=](int r) {
    if (r == rank) return in_row(rank);
    if (r == 0) return out;
    return scratch_place_of(row(elems, r - 1 - (rank != 0 && r > rank ? 1 : 0)));
  };
  schedule.scratch_elems = (rank == 0 ? size - 1 : size - 2) * elems;
  Round round;
  for_each_peer(rank, size, [&](int peer) { round.push_back(send_step(peer, in_row(peer))); });
  for_each_peer(rank, size, [&](int peer) { round.push_back(recv_copy(peer, values(peer))); });
  if (rank == 0) round.push_back(local_copy(in_row(0), out));
  for (int r = 1; r < size; ++r) round.push_back(local_reduce(values(r), out));
  if (size > 1) round.push_back(finish_step(out));
  schedule.rounds.push_back(std::move(round));
  return schedule;
}

}  // namespace gradwire
