// Gather and scatter of rows.
//
//   linear     one round: everybody sends its row to the root, or the root everybody's. p - 1
//              messages at the root, its time p - 1 latencies; every element moves once
//   binomial   up, or down, a binomial tree of intervals of ranks (halves.h): ceil(log2 p) rounds,
//              each message the rows of a whole interval; the root moves as many elements, others
//              pass rows on, at most half of all
#include <iterator>

#include "collectives/schedules/halves.h"
#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"

namespace gradwire {

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

Schedule binomial_scatter(int rank, int root, Counts counts) {
  const int size = static_cast<int>(counts.size());
  const std::vector<Range> rows = rows_of(counts);
  const Range own = rows[static_cast<std::size_t>(rank)];
  Schedule schedule{.rank = rank, .size = size, .out_elems = own.size(), .divisible = false};
  const std::vector<TreeEdge> edges = tree_edges_of(rank, size, root);
  const bool leaf = edges.empty() || (edges.size() == 1 && edges[0].to_head);
  const Place out = out_place_of({0, own.size()});
  if (rank == root) schedule.in_elems = rows.back().end;
  const Range held =
      rank == root || leaf ? own : stretch_of(rows, edges[0].moved.first, edges[0].moved.last);
  const auto place = [&](Range range) {
    return rank == root ? in_place_of(range) : scratch_place_of(shifted(range, -held.begin));
  };
  if (rank != root && !leaf) schedule.scratch_elems = held.size();
  for (const TreeEdge& edge : edges) {
    const Range moved = stretch_of(rows, edge.moved.first, edge.moved.last);
    schedule.rounds.push_back({edge.to_head ? recv_copy(edge.peer, leaf ? out : place(moved))
                                            : send_step(edge.peer, place(moved))});
  }
  if (rank == root || !leaf) schedule.rounds.push_back({local_copy(place(own), out)});
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

Schedule linear_scatter(int rank, int root, Counts counts) {
  const int size = static_cast<int>(counts.size());
  const std::vector<Range> rows = rows_of(counts);
  const Place out = out_place_of({0, counts[static_cast<std::size_t>(rank)]});
  Schedule schedule{.rank = rank, .size = size, .out_elems = out.range.size()};
  if (rank != root) {
    schedule.rounds.push_back({recv_copy(root, out)});
    return schedule;
  }
  schedule.in_elems = rows.back().end;
  Round round;
  for (int r = 0; r < size; ++r) {
    const Place in = in_place_of(rows[static_cast<std::size_t>(r)]);
    round.push_back(r == root ? local_copy(in, out) : send_step(r, in));
  }
  schedule.rounds.push_back(round);
  return schedule;
}

}  // namespace gradwire
