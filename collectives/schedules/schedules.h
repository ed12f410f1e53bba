// One pure function per algorithm: who sends which elements to whom, for one rank of a group.
//
// Vocabulary: p = size; the chunk of a rank is piece(elems, p, rank) or row `rank` of a (p, n)
// buffer. Every rank sends and receives its messages even when they are empty, so that ranks which
// disagree about a length find out from the messages themselves. Each file says rounds and elements
// sent.
#pragma once

#include <cstdint>
#include <span>

#include "gradwire/schedule.h"

namespace gradwire {

// In place over kOut: (elems). Every rank ends with the reduction of all.
Schedule ring_all_reduce(int rank, int size, std::int64_t elems);
Schedule canonical_all_reduce(int rank, int size, std::int64_t elems);

// kIn: (size, elems), kOut: (elems), the reduction of row `rank`.
Schedule ring_reduce_scatter(int rank, int size, std::int64_t elems);
Schedule canonical_reduce_scatter(int rank, int size, std::int64_t elems);

// kIn: (elems), kOut: (size, elems).
Schedule ring_all_gather(int rank, int size, std::int64_t elems);
// kIn: (elems[rank]), kOut: all ranks' blocks one after another. elems.size() is the group's size.
Schedule ring_all_gather_v(int rank, std::span<const std::int64_t> elems);

// In place over kOut: (elems); root's contents reach every rank.
Schedule binomial_broadcast(int rank, int size, int root, std::int64_t elems);

// No elements: nobody leaves before everybody has come.
Schedule dissemination_barrier(int rank, int size);

// kIn and kOut: (size, elems); row r goes to rank r, row r of kOut comes from it.
Schedule pairwise_all_to_all(int rank, int size, std::int64_t elems);
// The same with rows of send_elems[r] and recv_elems[r]; both have the group's size.
Schedule pairwise_all_to_all_v(int rank, std::span<const std::int64_t> send_elems,
                               std::span<const std::int64_t> recv_elems);

// One message, kIn to kOut there.
Schedule point_to_point_send(int rank, int size, int peer, std::int64_t elems);
Schedule point_to_point_recv(int rank, int size, int peer, std::int64_t elems);

}  // namespace gradwire
