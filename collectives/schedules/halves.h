// Any number of consecutive ranks, halved again and again: what recursive halving, recursive
// doubling and binomial gather trees have in common. Rank groups are intervals, so what they hold
// together is one stretch of rows.
//
//   p = 5   0 1 2 3 4
//           0 1 2 | 3 4
//           0 1 | 2   3 | 4
//           0 | 1
#pragma once

#include <vector>

namespace gradwire {

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
