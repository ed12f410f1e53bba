// Recursive halving and doubling, for any number of ranks (trees.h): a group and its rows are
// halved together. ceil(log2 p) rounds either way.
//
//   reduce-scatter (halving)   every rank sends what it has of the other half's rows to its partner
//                              there and adds what comes for its own half; then each half goes on
//                              alone. n - |own row| elements from every rank
//   all-gather (doubling)      the same backwards: halves that are complete exchange their rows
//   all-reduce                 both, over chunks: 2 ceil(log2 p) rounds; 2n(p-1)/p elements from
//                              every rank where p is a power of two that divides n
//   broadcast                  scatter down a binomial tree, then all-gather by doubling
//   reduce                     reduce-scatter by halving, then gather up a binomial tree
//
// Where halves differ by one, the odd one out adds no round: its partner's partner listens to two.
// Source: Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 2005; for the
// broadcast van de Geijn, J. Parallel Distrib. Comput. 1994.
#include <utility>

#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"
#include "collectives/schedules/trees.h"

namespace gradwire {
namespace {

std::pair<Interval, Interval> halves_of(Interval group) {
  const int middle = group.first + (group.last - group.first + 1) / 2;
  return {{group.first, middle}, {middle, group.last}};
}

}  // namespace

std::vector<Split> splits_of(int rank, int size) {
  std::vector<Split> splits;
  Interval group{0, size};
  while (group.last - group.first > 1) {
    const auto [left, right] = halves_of(group);
    const int pairs = right.last - right.first;
    Split split;
    if (left.contains(rank)) {
      const int i = rank - left.first;
      split = {left, right, right.first + (i < pairs ? i : 0)};
      if (i < pairs) split.recv_from.push_back(right.first + i);
    } else {
      const int i = rank - right.first;
      split = {right, left, left.first + i, {left.first + i}};
      if (i == 0 && left.last - left.first > pairs) split.recv_from.push_back(left.last - 1);
    }
    group = split.own;
    splits.push_back(split);
  }
  return splits;
}

std::vector<TreeEdge> tree_edges_of(int rank, int size, int root) {
  const auto head_of = [root](Interval group) { return group.contains(root) ? root : group.first; };
  std::vector<TreeEdge> edges;
  Interval group{0, size};
  while (group.last - group.first > 1) {
    const auto [left, right] = halves_of(group);
    const int head = head_of(group);
    const Interval near = left.contains(head) ? left : right;
    const Interval far = left.contains(head) ? right : left;
    if (rank == head) edges.push_back({head_of(far), far, false});
    if (rank == head_of(far)) edges.push_back({head, far, true});
    group = near.contains(rank) ? near : far;
  }
  return edges;
}

namespace {

Range rows_in(const std::vector<Range>& rows, Interval ranks) {
  return stretch_of(rows, ranks.first, ranks.last);
}

// `place` turns a range of all rows into where the sums grow. In place the own values are there;
// else kIn survives: the first values that arrive are put down there, and the own ones added to
// them. The last split always brings some.
template <typename PlaceOf>
void add_halving(Schedule& schedule, const std::vector<Range>& rows, const PlaceOf& place,
                 bool in_place) {
  bool moved = in_place;
  for (const Split& split : splits_of(schedule.rank, schedule.size)) {
    const Range own = rows_in(rows, split.own);
    const Range other = rows_in(rows, split.other);
    Round round{send_step(split.send_to, moved ? place(other) : in_place_of(other))};
    for (const int peer : split.recv_from) {
      const bool first = !moved && peer == split.recv_from.front();
      round.push_back(first ? recv_copy(peer, place(own)) : recv_reduce(peer, place(own)));
    }
    if (!moved && !split.recv_from.empty()) {
      round.push_back(local_reduce(in_place_of(own), place(own)));
      moved = true;
    }
    schedule.rounds.push_back(std::move(round));
  }
  const Range own = rows[static_cast<std::size_t>(schedule.rank)];
  if (schedule.size > 1) schedule.rounds.back().push_back(finish_step(place(own)));
}

// In place over kOut, where the own row is.
void add_doubling(Schedule& schedule, const std::vector<Range>& rows) {
  const std::vector<Split> splits = splits_of(schedule.rank, schedule.size);
  for (auto split = splits.rbegin(); split != splits.rend(); ++split) {
    Round round{recv_copy(split->send_to, out_place_of(rows_in(rows, split->other)))};
    for (const int peer : split->recv_from) {
      round.push_back(send_step(peer, out_place_of(rows_in(rows, split->own))));
    }
    schedule.rounds.push_back(std::move(round));
  }
}

}  // namespace

Schedule halving_doubling_all_reduce(int rank, int size, std::int64_t elems) {
  Schedule schedule = in_place_schedule(rank, size, elems);
  schedule.divisible = false;
  const std::vector<Range> chunks = pieces_of(elems, size);
  add_halving(schedule, chunks, out_place_of, true);
  add_doubling(schedule, chunks);
  return schedule;
}

Schedule halving_reduce_scatter(int rank, Counts counts) {
  const int size = static_cast<int>(counts.size());
  const std::vector<Range> rows = rows_of(counts);
  const Range own = rows[static_cast<std::size_t>(rank)];
  const Place out = out_place_of({0, own.size()});
  Schedule schedule{
      .rank = rank, .size = size, .in_elems = rows.back().end, .out_elems = own.size()};
  schedule.divisible = false;
  if (size == 1) {
    schedule.rounds.push_back({local_copy(in_place_of(own), out)});
    return schedule;
  }
  const Range most = rows_in(rows, splits_of(rank, size).front().own);
  schedule.scratch_elems = most.size();
  const auto sum = [&](Range range) { return scratch_place_of(shifted(range, -most.begin)); };
  add_halving(schedule, rows, sum, false);
  schedule.rounds.back().push_back(local_copy(sum(own), out));
  return schedule;
}

Schedule doubling_all_gather(int rank, Counts counts) {
  const std::vector<Range> rows = rows_of(counts);
  const Range own = rows[static_cast<std::size_t>(rank)];
  Schedule schedule{.rank = rank,
                    .size = static_cast<int>(counts.size()),
                    .in_elems = own.size(),
                    .out_elems = rows.back().end,
                    .divisible = false};
  schedule.rounds.push_back({local_copy(in_place_of({0, own.size()}), out_place_of(own))});
  add_doubling(schedule, rows);
  return schedule;
}

Schedule scatter_all_gather_broadcast(int rank, int size, int root, std::int64_t elems) {
  Schedule schedule = in_place_schedule(rank, size, elems);
  schedule.divisible = false;
  const std::vector<Range> chunks = pieces_of(elems, size);
  for (const TreeEdge& edge : tree_edges_of(rank, size, root)) {
    const Place moved = out_place_of(rows_in(chunks, edge.moved));
    schedule.rounds.push_back(
        {edge.to_head ? recv_copy(edge.peer, moved) : send_step(edge.peer, moved)});
  }
  add_doubling(schedule, chunks);
  return schedule;
}

// The root works in its output, the others in scratch of n elements.
Schedule scatter_gather_reduce(int rank, int size, int root, std::int64_t elems) {
  Schedule schedule{.rank = rank, .size = size, .in_elems = elems, .divisible = false};
  const std::vector<Range> chunks = pieces_of(elems, size);
  const auto place = [=](Range range) {
    return rank == root ? out_place_of(range) : scratch_place_of(range);
  };
  if (rank == root) {
    schedule.out_elems = elems;
    schedule.rounds.push_back({local_copy(in_place_of({0, elems}), out_place_of({0, elems}))});
  } else {
    schedule.scratch_elems = elems;
  }
  add_halving(schedule, chunks, place, rank == root);
  const std::vector<TreeEdge> edges = tree_edges_of(rank, size, root);
  for (auto edge = edges.rbegin(); edge != edges.rend(); ++edge) {
    const Place moved = place(rows_in(chunks, edge->moved));
    schedule.rounds.push_back(
        {edge->to_head ? send_step(edge->peer, moved) : recv_copy(edge->peer, moved)});
  }
  return schedule;
}

}  // namespace gradwire
