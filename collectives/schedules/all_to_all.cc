// Pairwise all-to-all: in round t every rank sends to the one t places on and receives from the one
// t places back, so each rank is one sender's target at a time. p - 1 rounds; from every rank all
// its rows but the own. The own row is copied.
#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"

namespace gradwire {

Schedule pairwise_all_to_all_v(int rank, std::span<const std::int64_t> send_elems,
                               std::span<const std::int64_t> recv_elems) {
  const int size = static_cast<int>(send_elems.size());
  const std::vector<Range> to = rows_of(send_elems);
  const std::vector<Range> from = rows_of(recv_elems);
  Schedule schedule{
      .rank = rank, .size = size, .in_elems = to.back().end, .out_elems = from.back().end};
  const auto in = [&](int r) { return in_place_of(to[static_cast<std::size_t>(r)]); };
  const auto out = [&](int r) { return out_place_of(from[static_cast<std::size_t>(r)]); };
  schedule.rounds.push_back({local_copy(in(rank), out(rank))});
  for (int t = 1; t < size; ++t) {
    const int next = around(rank + t, size);
    const int prev = around(rank - t, size);
    if (t > 1) schedule.rounds.emplace_back();
    schedule.rounds.back().push_back(send_step(next, in(next)));
    schedule.rounds.back().push_back(recv_copy(prev, out(prev)));
  }
  return schedule;
}

Schedule pairwise_all_to_all(int rank, int size, std::int64_t elems) {
  const std::vector<std::int64_t> rows(static_cast<std::size_t>(size), elems);
  return pairwise_all_to_all_v(rank, rows, rows);
}

}  // namespace gradwire
