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
// all_gather, all_to_all and broadcast between tensors of the arena, and between these and others.
std::string move_shared_tensors(Communicator& world);
// bytes_sent() counts what other ranks get from this one.
std::string count_shared_bytes(Communicator& world);

}  // namespace gradwire
