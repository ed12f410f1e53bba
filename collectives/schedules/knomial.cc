// Trees with k - 1 children a level; k = 2 is the binomial tree.
//
//   p = 8, k = 2, root 0   round 1   0 -> 4
//                          round 2   0 -> 2, 4 -> 6
//                          round 3   0 -> 1, 2 -> 3, 4 -> 5, 6 -> 7
//
//   broadcast    ceil(log_k p) rounds: in every round each rank that has the data gives it to k - 1
//                that have not. n elements a message, (p-1) n in all
//   reduce       the same backwards; a rank adds its children's sums, smallest subtrees first,
//                those of one level in one reduction
//   all-reduce   reduce to rank 0, then broadcast
//   barrier      the same without elements: 2 ceil(log2 p) rounds
//
// Cut into segments the trees pipeline by themselves: a rank passes a segment on while the next
// comes in. Source: Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 2005 (the
// binomial tree).
#include <utility>

#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"
#include "collectives/schedules/trees.h"

namespace gradwire {
namespace {

void add_broadcast(Schedule& schedule, const KnomialNode& node, Place all) {
  if (node.parent >= 0) schedule.rounds.push_back({recv_copy(node.parent, all)});
  for (const std::vector<int>& level : node.levels) {
    Round round;
    for (const int child : level) round.push_back(send_step(child, all));
    schedule.rounds.push_back(std::move(round));
  }
}

// Into `sum`, which holds the own values, or will once the first child's have come.
void add_reduce(Schedule& schedule, const KnomialNode& node, Place own, Place sum) {
  bool holds = own == sum;
  for (auto level = node.levels.rbegin(); level != node.levels.rend(); ++level) {
    Round round;
    for (const int child : *level) {
      const bool first = !holds && child == level->front();
      round.push_back(first ? recv_copy(child, sum) : recv_reduce(child, sum));
    }
    if (!holds) round.push_back(local_reduce(own, sum));
    holds = true;
    schedule.rounds.push_back(std::move(round));
  }
  if (node.parent >= 0) {
    schedule.rounds.push_back({send_step(node.parent, holds ? sum : own)});
  } else if (schedule.size > 1) {
    schedule.rounds.back().push_back(finish_step(sum));
  }
}

}  // namespace

KnomialNode knomial_node(int rank, int size, int root, int radix) {
  const int place = around(rank - root, size);
  KnomialNode node;
  for (int digit = 1; digit < size; digit *= radix) {
    const int value = place / digit % radix;
    if (value != 0) {
      node.parent = around(place - value * digit + root, size);
      break;
    }
    std::vector<int> level;
    for (int d = 1; d < radix && place + d * digit < size; ++d) {
      level.push_back(around(place + d * digit + root, size));
    }
    if (!level.empty()) node.levels.insert(node.levels.begin(), std::move(level));
  }
  return node;
}

Schedule knomial_broadcast(int rank, int size, int root, std::int64_t elems, int radix) {
  Schedule schedule = in_place_schedule(rank, size, elems);
  add_broadcast(schedule, knomial_node(rank, size, root, radix), out_place_of({0, elems}));
  return schedule;
}

// The root collects in its output, ranks with children in scratch, the others need nothing.
Schedule knomial_reduce(int rank, int size, int root, std::int64_t elems, int radix) {
  Schedule schedule{.rank = rank, .size = size, .in_elems = elems};
  const KnomialNode node = knomial_node(rank, size, root, radix);
  const Place in = in_place_of({0, elems});
  const Place out = out_place_of({0, elems});
  if (rank == root) {
    schedule.out_elems = elems;
    schedule.rounds.push_back({local_copy(in, out)});
    add_reduce(schedule, node, out, out);
  } else {
    if (!node.levels.empty()) schedule.scratch_elems = elems;
    add_reduce(schedule, node, in, scratch_place_of({0, elems}));
  }
  return schedule;
}

Schedule knomial_all_reduce(int rank, int size, std::int64_t elems, int radix) {
  Schedule schedule = in_place_schedule(rank, size, elems);
  const KnomialNode node = knomial_node(rank, size, 0, radix);
  const Place all = out_place_of({0, elems});
  add_reduce(schedule, node, all, all);
  add_broadcast(schedule, node, all);
  return schedule;
}

Schedule tree_barrier(int rank, int size) {
  Schedule schedule = in_place_schedule(rank, size, 0);
  const KnomialNode node = knomial_node(rank, size, 0, 2);
  for (auto level = node.levels.rbegin(); level != node.levels.rend(); ++level) {
    Round round;
    for (const int child : *level) round.push_back(recv_copy(child, {}));
    schedule.rounds.push_back(std::move(round));
  }
  if (node.parent >= 0) schedule.rounds.push_back({send_step(node.parent, {})});
  add_broadcast(schedule, node, {});
  return schedule;
}

}  // namespace gradwire
