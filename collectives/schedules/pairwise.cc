// Pairwise exchange: in round t every rank sends to the one t places on and receives from the one t
// places back, so each rank is one sender's target at a time. p - 1 rounds; from every rank all its
// rows but the own.
//
//   all-to-all       the rows are what others want; the own row is copied
//   reduce-scatter   the rows are contributions to others' rows, added as they come: rank r's row
//                    is summed in the order r, r - 1, r - 2, ... around the circle
//
// Source: Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 2005.
#include <utility>

#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"

namespace gradwire {

Schedule pairwise_all_to_all(int rank, Counts to, Counts from) {
  const int size = static_cast<int>(to.size());
  const std::vector<Range> sent = rows_of(to);
  const std::vector<Range> received = rows_of(from);
  Schedule schedule{
      .rank = rank, .size = size, .in_elems = sent.back().end, .out_elems = received.back().end};
  const auto in = [&](int r) { return in_place_of(sent[static_cast<std::size_t>(r)]); };
  const auto out = [&](int r) { return out_place_of(received[static_cast<std::size_t>(r)]); };
  schedule.rounds.push_back({local_copy(in(rank), out(rank))});
  for (int t = 1; t < size; ++t) {
    const int next = around(rank + t, size);
    const int prev = around(rank - t, size);
    schedule.rounds.push_back({send_step(next, in(next)), recv_copy(prev, out(prev))});
  }
  return schedule;
}

Schedule pairwise_reduce_scatter(int rank, Counts counts) {
  const int size = static_cast<int>(counts.size());
  const std::vector<Range> rows = rows_of(counts);
  const auto in = [&](int r) { return in_place_of(rows[static_cast<std::size_t>(r)]); };
  const Place out = out_place_of({0, in(rank).range.size()});
  Schedule schedule{
      .rank = rank, .size = size, .in_elems = rows.back().end, .out_elems = out.range.size()};
  schedule.rounds.push_back({local_copy(in(rank), out)});
  for (int t = 1; t < size; ++t) {
    const int next = around(rank + t, size);
    schedule.rounds.push_back(
        {send_step(next, in(next)), recv_reduce(around(rank - t, size), out)});
  }
  if (size > 1) schedule.rounds.back().push_back(finish_step(out));
  return schedule;
}

// Everything at once: one round in which every rank sends to every other one what that one needs.
// One message's latency, p - 1 messages from every rank; for small p and small messages.
//
//   all-gather   the own row to everybody: (p-1) |own| elements
//   all-to-all   all rows but the own
// The all-reduce is in canonical.cc.

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
  Schedule schedule = pairwise_all_to_all(rank, to, from);
  Round all;
  for (const std::size_t side : {0u, 1u}) {  // sends, then receives
    for (std::size_t t = 1; t < schedule.rounds.size(); ++t) {
      all.push_back(schedule.rounds[t][side]);
    }
  }
  all.push_back(schedule.rounds[0][0]);  // the own row
  schedule.rounds = {std::move(all)};
  return schedule;
}

}  // namespace gradwire
