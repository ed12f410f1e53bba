#include "collectives/schedules/halves.h"

namespace gradwire {
namespace {

struct Halves {
  Interval left;
  Interval right;
};

Halves halves_of(Interval group) {
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

}  // namespace gradwire
