// Pairwise exchange: in round t every rank sends to the one t places on and receives from the one t
// places back, so each rank is one sender's target at a time. p - 1 rounds; from every rank all its
// rows but the own.
//
//   all-to-all       the rows are what others want; the own row is copied
//   reduce-scatter   the rows are contributions to others' rows, added as they come: rank r's row
//                    is summed in the order r, r - 1, r - 2, ... around the circle
//
// Source: Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 2005.
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

}  // namespace gradwire
