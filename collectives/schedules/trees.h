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

}  // namespace gradwire
