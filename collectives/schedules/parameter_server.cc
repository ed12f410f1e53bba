// The parameter server's pattern: everybody sends all of its elements to one rank, which adds them
// and sends the sum to everybody. 2 rounds; n elements from a worker, (p-1) n in and out of the
// server, whose port therefore bounds the whole. Summed in rank order from the server's own values
// on, in one reduction: with rank 0 as the server that is the canonical order.
// Source: Li et al., OSDI 2014.
#include <utility>

#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"

namespace gradwire {

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

}  // namespace gradwire
