// Double binary trees: two trees over the same ranks, each for one half of the elements. A rank
// that passes on in one is a leaf in the other, so every rank sends and receives about as much as
// any other, and the height is logarithmic: full bandwidth with a tree's latency.
//
//   first tree, p even   rank r with lowest set bit b has the parent (r ^ b) | 2b, or r ^ b where
//                        that is no rank, and the children r - b/2 and r + b/2, the latter with its
//                        bit halved until it is a rank; rank 0 is on top and has one child. Odd
//                        ranks are leaves
//   second tree          the first with the ranks numbered backwards: even ranks are leaves
//   p odd                the trees of p - 1 ranks; the last rank joins both as the top's second
//                        child. (A shift by one instead of the mirror, as NCCL has it, leaves one
//                        rank with children in both.)
//
//   all-reduce   up and down both trees: at most 2n elements from a rank, n/2 from a leaf of both;
//                at most 2 (log2 p + 1) rounds deep
//   broadcast    the trees join all ranks but the root, which feeds the tops: n elements from it
//   reduce       the same backwards
//
// Cut into segments both trees are full pipelines. Sources: Sanders, Speck and Traeff, Parallel
// Comput. 2009; the construction is that of NCCL 2.4.
#include <utility>

#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"
#include "collectives/schedules/trees.h"

namespace gradwire {
namespace {

// The first tree of an even number of ranks.
TreeNode even_node(int rank, int size) {
  TreeNode node;
  if (rank == 0) {
    int child = 1;
    while (2 * child < size) child *= 2;
    if (size > 1) node.children = {child};
    return node;
  }
  const int bit = rank & -rank;
  const int parent = (rank ^ bit) | (2 * bit);
  node.parent = parent < size ? parent : rank ^ bit;
  if (bit == 1) return node;
  node.children = {rank - bit / 2};
  int step = bit / 2;
  while (step > 0 && rank + step >= size) step /= 2;
  if (step > 0) node.children.push_back(rank + step);
  return node;
}

// Both of a rank's nodes with what they carry.
struct Branch {
  TreeNode node;
  Place half;
};

std::vector<Branch> branches_of(int rank, int size, std::int64_t elems) {
  std::vector<Branch> branches;
  for (int tree = 0; tree < 2; ++tree) {
    branches.push_back({double_tree_node(tree, rank, size), out_place_of(piece(elems, 2, tree))});
  }
  return branches;
}

void add(Schedule& schedule, Round round) {
  if (!round.empty()) schedule.rounds.push_back(std::move(round));
}

// Of trees that leave `root` out, which stands above their tops.
std::vector<Branch> branches_below(int rank, int size, int root, std::int64_t elems) {
  const auto with_root = [root](int place) { return place < root ? place : place + 1; };
  if (rank == root && size == 1) return branches_of(0, 1, elems);
  const int place = rank < root ? rank : rank - 1;
  std::vector<Branch> branches = branches_of(rank == root ? 0 : place, size - 1, elems);
  for (int tree = 0; tree < 2; ++tree) {
    TreeNode& node = branches[static_cast<std::size_t>(tree)].node;
    if (rank == root) {
      node = {-1, {with_root(double_tree_top(tree, size - 1))}};
      continue;
    }
    node.parent = node.parent < 0 ? root : with_root(node.parent);
    for (int& child : node.children) child = with_root(child);
  }
  return branches;
}

}  // namespace

int double_tree_top(int tree, int size) {
  const int even = size - (size > 1 ? size % 2 : 0);
  return tree == 0 ? 0 : even - 1;
}

TreeNode double_tree_node(int tree, int rank, int size) {
  if (size == 1) return {};
  const int even = size - size % 2;
  const int top = double_tree_top(tree, size);
  if (rank == even) return {top, {}};
  TreeNode node = even_node(tree == 0 ? rank : even - 1 - rank, even);
  if (tree == 1) {
    if (node.parent >= 0) node.parent = even - 1 - node.parent;
    for (int& child : node.children) child = even - 1 - child;
  }
  if (rank == top && even != size) node.children.push_back(even);
  return node;
}

// A leaf hands its half up at once and takes the result last of all, so that it never waits for one
// tree before it has passed on in the other.
Schedule double_tree_all_reduce(int rank, int size, std::int64_t elems) {
  Schedule schedule = in_place_schedule(rank, size, elems);
  if (size == 1) return schedule;
  Round collect, hand_up, take_down, pass_on;
  for (const auto& [node, half] : branches_of(rank, size, elems)) {
    if (node.children.empty()) {
      collect.push_back(send_step(node.parent, half));
      pass_on.push_back(recv_copy(node.parent, half));
      continue;
    }
    for (const int child : node.children) {
      collect.push_back(recv_reduce(child, half));
      pass_on.push_back(send_step(child, half));
    }
    if (node.parent < 0) {
      collect.push_back(finish_step(half));
    } else {
      hand_up.push_back(send_step(node.parent, half));
      take_down.push_back(recv_copy(node.parent, half));
    }
  }
  add(schedule, std::move(collect));
  add(schedule, std::move(hand_up));
  add(schedule, std::move(take_down));
  add(schedule, std::move(pass_on));
  return schedule;
}

Schedule double_tree_broadcast(int rank, int size, int root, std::int64_t elems) {
  Schedule schedule = in_place_schedule(rank, size, elems);
  if (size == 1) return schedule;
  Round take, pass_on;
  for (const auto& [node, half] : branches_below(rank, size, root, elems)) {
    Round& arrivals = node.children.empty() ? pass_on : take;
    if (node.parent >= 0) arrivals.push_back(recv_copy(node.parent, half));
    for (const int child : node.children) pass_on.push_back(send_step(child, half));
  }
  add(schedule, std::move(take));
  add(schedule, std::move(pass_on));
  return schedule;
}

Schedule double_tree_reduce(int rank, int size, int root, std::int64_t elems) {
  Schedule schedule{.rank = rank, .size = size, .in_elems = elems};
  if (rank == root) schedule.out_elems = elems;
  Round own_values, collect, hand_up;
  for (const auto& [node, half] : branches_below(rank, size, root, elems)) {
    const Place own = in_place_of(half.range);
    if (rank == root) {
      own_values.push_back(local_copy(own, half));
      for (const int child : node.children) collect.push_back(recv_reduce(child, half));
      if (size > 1) collect.push_back(finish_step(half));
      continue;
    }
    if (node.children.empty()) {
      collect.push_back(send_step(node.parent, own));
      continue;
    }
    const Place sum = scratch_place_of({0, half.range.size()});
    schedule.scratch_elems = sum.range.size();
    for (const int child : node.children) {
      const bool first = child == node.children.front();
      collect.push_back(first ? recv_copy(child, sum) : recv_reduce(child, sum));
    }
    collect.push_back(local_reduce(own, sum));
    hand_up.push_back(send_step(node.parent, sum));
  }
  add(schedule, std::move(own_values));
  add(schedule, std::move(collect));
  add(schedule, std::move(hand_up));
  return schedule;
}

}  // namespace gradwire
