// One pure function per algorithm: who sends which elements to whom, for one rank of a group.
//
// Vocabulary: p = size; the chunk of a rank is piece(elems, p, rank), its row is what `counts` says
// of rows that lie one after another in rank order. Every rank sends and receives its messages even
// when they are empty, so that ranks which disagree about a length find out from the messages
// themselves. Each file says rounds and elements sent. Where a smaller buffer has its place in the
// larger one, as a rank's row or as the whole, the two may be the same memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/schedule.h"

namespace gradwire {

using Counts = std::span<const std::int64_t>;  // one of each rank; its size is the group's

// The same with kIn and kOut apart: `schedule` is in place, and every rank's kIn survives.
Schedule out_of_place(Schedule schedule);

// Elements [in_begin, in_begin + elems) of kIn are the memory of kOut's from out_begin on.
struct SharedElems {
  std::int64_t elems = 0;
  std::int64_t in_begin = 0;
  std::int64_t out_begin = 0;
};

// What was made for an input of its own runs in place: a schedule without in_place, for a kIn and
// kOut that share memory. Where it would overwrite input that it reads later, that part of the
// output grows in scratch memory and is copied at the end. Requires that cells of kIn and of kOut
// in the shared memory are equal or disjoint there.
Schedule in_place(const Schedule& schedule, const SharedElems& shared);

// Ranks by the node that they are on.
struct Nodes {
  std::vector<std::vector<int>> ranks;  // of each node, ascending; nodes by their first rank
  std::vector<int> node_of;             // by rank: which of them
  std::vector<int> place_of;            // by rank: which of its node's ranks
  int smallest() const;                 // ranks of the smallest node
  bool alike() const;                   // all nodes have as many ranks
};
// keys: any number for each rank, equal on one node.
Nodes nodes_of(std::span<const int> keys);

// All-reduce, in place over kOut: (elems). Every rank ends with the reduction of all.
Schedule ring_all_reduce(int rank, int size, std::int64_t elems);
Schedule canonical_all_reduce(int rank, int size, std::int64_t elems);
Schedule direct_all_reduce(int rank, int size, std::int64_t elems);
Schedule recursive_doubling_all_reduce(int rank, int size, std::int64_t elems);
Schedule halving_doubling_all_reduce(int rank, int size, std::int64_t elems);
Schedule knomial_all_reduce(int rank, int size, std::int64_t elems, int radix);
Schedule double_tree_all_reduce(int rank, int size, std::int64_t elems);
Schedule parameter_server_all_reduce(int rank, int size, int root, std::int64_t elems);
// node_of: one of each rank. levels: their product is `size`; level 0 joins ranks of one node where
// nodes are as large as it.
Schedule two_level_all_reduce(int rank, std::span<const int> node_of, std::int64_t elems);
Schedule blueconnect_all_reduce(int rank, std::span<const int> node_of, std::span<const int> levels,
                                std::int64_t elems);
// Ascending, their product is `size`: the levels where nothing else says what they are.
std::vector<int> prime_factors(int size);

// kIn: all ranks' rows; kOut: (counts[rank]), the reduction of the own row.
Schedule ring_reduce_scatter(int rank, Counts counts);
Schedule canonical_reduce_scatter(int rank, Counts counts);
Schedule halving_reduce_scatter(int rank, Counts counts);
Schedule pairwise_reduce_scatter(int rank, Counts counts);

// kIn: (counts[rank]), kOut: all ranks' rows.
Schedule ring_all_gather(int rank, Counts counts);
Schedule doubling_all_gather(int rank, Counts counts);
Schedule bruck_all_gather(int rank, Counts counts);
Schedule direct_all_gather(int rank, Counts counts);

// In place over kOut: (elems); root's contents reach every rank.
Schedule knomial_broadcast(int rank, int size, int root, std::int64_t elems, int radix);
Schedule double_tree_broadcast(int rank, int size, int root, std::int64_t elems);
Schedule scatter_all_gather_broadcast(int rank, int size, int root, std::int64_t elems);
Schedule chain_broadcast(int rank, int size, int root, std::int64_t elems);

// kIn: (elems); kOut: (elems) on root, none elsewhere.
Schedule knomial_reduce(int rank, int size, int root, std::int64_t elems, int radix);
Schedule double_tree_reduce(int rank, int size, int root, std::int64_t elems);
Schedule scatter_gather_reduce(int rank, int size, int root, std::int64_t elems);
Schedule canonical_reduce(int rank, int size, int root, std::int64_t elems);

// kIn: (counts[rank]); kOut: all ranks' rows on root, none elsewhere.
Schedule binomial_gather(int rank, int root, Counts counts);
Schedule linear_gather(int rank, int root, Counts counts);
// kIn: all ranks' rows on root, none elsewhere; kOut: (counts[rank]).
Schedule binomial_scatter(int rank, int root, Counts counts);
Schedule linear_scatter(int rank, int root, Counts counts);

// kIn and kOut: rows; row r goes to rank r, row r of kOut comes from it. to, from: their lengths.
Schedule pairwise_all_to_all(int rank, Counts to, Counts from);
Schedule direct_all_to_all(int rank, Counts to, Counts from);
Schedule bruck_all_to_all(int rank, int size, std::int64_t elems);

// No elements: nobody leaves before everybody has come.
Schedule dissemination_barrier(int rank, int size);
Schedule tree_barrier(int rank, int size);

// kIn and kOut: (elems); kOut becomes the reduction of the ranks below, rank 0's is left alone.
Schedule linear_exclusive_scan(int rank, int size, std::int64_t elems);
Schedule doubling_exclusive_scan(int rank, int size, std::int64_t elems);

// kIn goes to the next rank, kOut comes from the one before.
Schedule neighbour_send_recv(int rank, int size, std::int64_t elems);

// One message, kIn to kOut there.
Schedule point_to_point_send(int rank, int size, int peer, std::int64_t elems);
Schedule point_to_point_recv(int rank, int size, int peer, std::int64_t elems);

}  // namespace gradwire
