// Who is above and below whom in the trees that schedules use.
#pragma once

#include <vector>

namespace gradwire {

struct TreeNode {
  int parent = -1;  // none at the top
  std::vector<int> children = {};
};

// The k-nomial tree: counted from the root, a rank's parent is itself with its lowest non-zero
// digit (base `radix`) set to zero, and its children are itself with one digit below that not zero.
struct KnomialNode {
  int parent = -1;
  std::vector<std::vector<int>> levels = {};  // children by digit, largest subtrees first
};
KnomialNode knomial_node(int rank, int size, int root, int radix);

// Two binary trees over the same ranks, `tree` 0 or 1: every rank has children in at most one of
// them, and neither is higher than log2 p + 1. See double_tree.cc.
TreeNode double_tree_node(int tree, int rank, int size);

// The top of either.
int double_tree_top(int tree, int size);

// Any number of consecutive ranks, halved again and again: what recursive halving, recursive
// doubling and binomial gather trees have in common. Rank groups are intervals, so what they hold
// together is one stretch of rows.
//
//   p = 5   0 1 2 3 4
//           0 1 2 | 3 4
//           0 1 | 2   3 | 4
//           0 | 1
struct Interval {
  int first = 0;
  int last = 0;  // not in it
  bool contains(int rank) const { return first <= rank && rank < last; }
};

// One split of a rank's group: its own half and the other one, the larger half first where they
// differ by one. Rank i of a half has rank i of the other as its partner; the odd one out talks to
// rank 0 there, which then has two to listen to.
struct Split {
  Interval own;
  Interval other;
  int send_to = 0;                  // who takes this rank's values of the other half
  std::vector<int> recv_from = {};  // whose values of the own half it takes: none, one or two
};

// From the whole group down to this rank alone: at most ceil(log2 p) splits.
std::vector<Split> splits_of(int rank, int size);

// One edge of a binomial tree over the same halves: each interval has a head, the root where it is
// in it, else its first rank; the head of the half without the head of the whole hands over, or
// takes, what its half has. ceil(log2 p) edges deep.
struct TreeEdge {
  int peer = 0;
  Interval moved;        // the ranks whose rows go over the edge
  bool to_head = false;  // in a gather: this rank sends; false: it receives. A scatter turns both
};

// A rank's edges from the whole group down: towards the root (if any) first.
std::vector<TreeEdge> tree_edges_of(int rank, int size, int root);

}  // namespace gradwire
