// Everything at once: one round in which every rank sends to every other one what that one needs.
// One message's latency, p - 1 messages from every rank; for small p and small messages.
//
//   all-reduce   everybody sends all of its n elements to everybody, who fold them in rank order,
//                rounded once as in the canonical order: (p-1) n elements from every rank
//   all-gather   the own row to everybody: (p-1) |own| elements
//   all-to-all   all rows but the own
#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"

namespace gradwire {

Schedule direct_all_reduce(int rank, int size, std::int64_t elems) {
  Schedule schedule{.rank = rank, .size = size, .in_elems = elems, .out_elems = elems};
  schedule.in_place = true;
  if (size == 1) return schedule;
  schedule.fan_in = size - 1;
  const Place own = out_place_of({0, elems});
  const auto values = [=](int r) {
    return r == rank ? own : scratch_place_of(row(elems, r < rank ? r : r - 1));
  };
  schedule.scratch_elems = (size - 1) * elems;
  Round round;
  for (int t = 1; t < size; ++t) round.push_back(send_step(around(rank + t, size), own));
  for (int t = 1; t < size; ++t) {
    const int peer = around(rank + t, size);
    round.push_back(recv_copy(peer, values(peer)));
  }
  for (int r = 1; r < size; ++r) round.push_back(local_reduce(values(r), values(0)));
  round.push_back(finish_step(values(0)));
  if (rank != 0) round.push_back(local_copy(values(0), own));
  schedule.rounds.push_back(std::move(round));
  return schedule;
}

Schedule direct_all_gather(int rank, Counts counts) {
  const int size = static_cast<int>(counts.size());
  const std::vector<Range> rows = rows_of(counts);
  const auto out = [&](int r) { return out_place_of(rows[static_cast<std::size_t>(r)]); };
  const Place own = in_place_of({0, out(rank).range.size()});
  Schedule schedule{
      .rank = rank, .size = size, .in_elems = own.range.size(), .out_elems = rows.back().end};
  Round round;
  for (int t = 1; t < size; ++t) round.push_back(send_step(around(rank + t, size), own));
  for (int t = 1; t < size; ++t) {
    const int peer = around(rank + t, size);
    round.push_back(recv_copy(peer, out(peer)));
  }
  round.push_back(local_copy(own, out(rank)));
  schedule.rounds.push_back(std::move(round));
  return schedule;
}

Schedule direct_all_to_all(int rank, Counts to, Counts from) {
  const int size = static_cast<int>(to.size());
  const std::vector<Range> sent = rows_of(to);
  const std::vector<Range> received = rows_of(from);
  Schedule schedule{
      .rank = rank, .size = size, .in_elems = sent.back().end, .out_elems = received.back().end};
  const auto in = [&](int r) { return in_place_of(sent[static_cast<std::size_t>(r)]); };
  const auto out = [&](int r) { return out_place_of(received[static_cast<std::size_t>(r)]); };
  Round round;
  for (int t = 1; t < size; ++t) {
    const int next = around(rank + t, size);
    round.push_back(send_step(next, in(next)));
  }
  for (int t = 1; t < size; ++t) {
    const int prev = around(rank - t, size);
    round.push_back(recv_copy(prev, out(prev)));
  }
  round.push_back(local_copy(in(rank), out(rank)));
  schedule.rounds.push_back(std::move(round));
  return schedule;
}

}  // namespace gradwire
