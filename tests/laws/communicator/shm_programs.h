// What a communicator promises whose ranks share memory, as programs that one rank runs; see
// communicator_programs.h.
#pragma once

#include <string>

#include "gradwire/communicator.h"

namespace gradwire {

// It does share memory, where there is anybody to share with.
std::string shares_memory(Communicator& world);
// all_reduce and reduce_scatter of every dtype and op equal the left fold in rank order, rounded
// once, bit for bit, for small, large, shared and private tensors, aligned or not.
std::string reduce_in_rank_order(Communicator& world);
std::string reduce_large_in_rank_order(Communicator& world);
// The same of reduce to every root, reduce_scatter_v and exclusive_scan.
std::string reduce_in_memory(Communicator& world);
// gather(_v) and scatter(_v) to and from every root, from and to tensors of the arena and others.
std::string move_to_and_from_root(Communicator& world);
// all_gather, all_to_all and broadcast between tensors of the arena, and between these and others.
std::string move_shared_tensors(Communicator& world);
// Small, middle and large sums under way at once, each with its own result.
std::string sizes_side_by_side(Communicator& world);
// bytes_sent() counts what other ranks get from this one.
std::string count_shared_bytes(Communicator& world);

}  // namespace gradwire
