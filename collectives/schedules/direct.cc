// Everything at once: one round in which every rank sends to every other one what that one needs.
// One message's latency, p - 1 messages from every rank; for small p and small messages.
//
//   all-gather   the own row to everybody: (p-1) |own| elements
//   all-to-all   all rows but the own
// The all-reduce is in canonical.cc.
#include <utility>

#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"

namespace gradwire {

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
