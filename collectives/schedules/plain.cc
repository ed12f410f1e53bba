// Schedules of a few steps: one message, a chain, a server, and the barrier that needs no tree.
#include <utility>

#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"

namespace gradwire {

// One message: n elements, one round on either side. Around all ranks: one each way, n elements
// from every rank, one round.
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

// Chain broadcast: every rank receives from the one before it, counted from the root, and passes on
// to the next. p - 1 rounds one after another, but each rank sends n elements once alone and, cut
// into k segments, all links work at once: (p - 2 + k)(alpha + n beta / k).
Schedule chain_broadcast(int rank, int size, int root, std::int64_t elems) {
  Schedule schedule = in_place_schedule(rank, size, elems);
  const Place all = out_place_of({0, elems});
  const int place = around(rank - root, size);
  if (place > 0) schedule.rounds.push_back({recv_copy(around(rank - 1, size), all)});
  if (place < size - 1) schedule.rounds.push_back({send_step(around(rank + 1, size), all)});
  return schedule;
}

// The parameter server's pattern: everybody sends all of its elements to one rank, which adds them
// and sends the sum to everybody. 2 rounds; n elements from a worker, (p-1) n in and out of the
// server, whose port therefore bounds the whole. Summed in rank order from the server's own values
// on, in one reduction: with rank 0 as the server that is the canonical order.
// Source: Li et al., OSDI 2014.
Schedule parameter_server_all_reduce(int rank, int size, int root, std::int64_t elems) {
  Schedule schedule = in_place_schedule(rank, size, elems);
  if (size == 1) return schedule;
  const Place all = out_place_of({0, elems});
  schedule.fan_in = size - 1;
  if (rank != root) {
    schedule.rounds = {{send_step(root, all)}, {recv_copy(root, all)}};
    return schedule;
  }
  Round push, pull;
  for (int worker = 0; worker < size; ++worker) {
    if (worker == root) continue;
    push.push_back(recv_reduce(worker, all));
    pull.push_back(send_step(worker, all));
  }
  push.push_back(finish_step(all));
  schedule.rounds = {std::move(push), std::move(pull)};
  return schedule;
}

// Dissemination barrier: in round k every rank tells the one 2^k places on, so after ceil(log2 p)
// rounds it has heard, through others, from all. Empty messages, ceil(log2 p) from every rank.
// Source: Hensgen, Finkel and Manber, Int. J. Parallel Program. 1988.
Schedule dissemination_barrier(int rank, int size) {
  Schedule schedule = in_place_schedule(rank, size, 0);
  for (int distance = 1; distance < size; distance *= 2) {
    schedule.rounds.push_back({send_step(around(rank + distance, size), {}),
                               recv_copy(around(rank - distance, size), {})});
  }
  return schedule;
}

}  // namespace gradwire
