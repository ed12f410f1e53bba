// Gather and scatter of rows.
//
//   linear     one round: everybody sends its row to the root, or the root everybody's. p - 1
//              messages at the root, its time p - 1 latencies; every element moves once
//   binomial   up, or down, a binomial tree of intervals of ranks (trees.h): ceil(log2 p) rounds,
//              each message the rows of a whole interval; the root moves as many elements, others
//              pass rows on, at most half of all
#include <algorithm>
#include <utility>

#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"
#include "collectives/schedules/trees.h"

namespace gradwire {
namespace {

// A gather backwards in time, which is a scatter: what was sent is received, what was read is
// written.
Schedule reversed(Schedule schedule) {
  const auto other = [](Place place) {
    if (place.buffer == BufferId::kIn) return out_place_of(place.range);
    return place.buffer == BufferId::kOut ? in_place_of(place.range) : place;
  };
  std::swap(schedule.in_elems, schedule.out_elems);
  std::ranges::reverse(schedule.rounds);
  for (Round& round : schedule.rounds) {
    for (Step& step : round) {
      if (step.op == Step::Op::kSend) {
        step = recv_copy(step.peer, other(step.from));
      } else if (step.op == Step::Op::kRecvCopy) {
        step = send_step(step.peer, other(step.to));
      } else {
        step = local_copy(other(step.to), other(step.from));
      }
    }
  }
  return schedule;
}

}  // namespace

Schedule binomial_gather(int rank, int root, Counts counts) {
  const int size = static_cast<int>(counts.size());
  const std::vector<Range> rows = rows_of(counts);
  const Range own = rows[static_cast<std::size_t>(rank)];
  Schedule schedule{.rank = rank, .size = size, .in_elems = own.size(), .divisible = false};
  const std::vector<TreeEdge> edges = tree_edges_of(rank, size, root);
  const bool leaf = edges.empty() || (edges.size() == 1 && edges[0].to_head);
  const Place in = in_place_of({0, own.size()});
  if (rank == root) schedule.out_elems = rows.back().end;
  // A head that is not the root collects its interval in scratch.
  const Range collected =
      rank == root || leaf ? own : stretch_of(rows, edges[0].moved.first, edges[0].moved.last);
  const auto place = [&](Range range) {
    return rank == root ? out_place_of(range) : scratch_place_of(shifted(range, -collected.begin));
  };
  if (rank == root || !leaf) schedule.rounds.push_back({local_copy(in, place(own))});
  if (rank != root && !leaf) schedule.scratch_elems = collected.size();
  for (auto edge = edges.rbegin(); edge != edges.rend(); ++edge) {
    const Range moved = stretch_of(rows, edge->moved.first, edge->moved.last);
    schedule.rounds.push_back({edge->to_head ? send_step(edge->peer, leaf ? in : place(moved))
                                             : recv_copy(edge->peer, place(moved))});
  }
  return schedule;
}

Schedule linear_gather(int rank, int root, Counts counts) {
  const int size = static_cast<int>(counts.size());
  const std::vector<Range> rows = rows_of(counts);
  const Place in = in_place_of({0, counts[static_cast<std::size_t>(rank)]});
  Schedule schedule{.rank = rank, .size = size, .in_elems = in.range.size()};
  if (rank != root) {
    schedule.rounds.push_back({send_step(root, in)});
    return schedule;
  }
  schedule.out_elems = rows.back().end;
  Round round;
  for (int r = 0; r < size; ++r) {
    const Place out = out_place_of(rows[static_cast<std::size_t>(r)]);
    round.push_back(r == root ? local_copy(in, out) : recv_copy(r, out));
  }
  schedule.rounds.push_back(round);
  return schedule;
}

Schedule binomial_scatter(int rank, int root, Counts counts) {
  return reversed(binomial_gather(rank, root, counts));
}

Schedule linear_scatter(int rank, int root, Counts counts) {
  return reversed(linear_gather(rank, root, counts));
}

}  // namespace gradwire
