// One message of one batch on its way.
//
// On a connection a message is a frame:
//
//   frame        := tag:u64 bytes:u64 payload{bytes}   little-endian
//   announcement := tag:u64 2^63 + bytes:u64 id:u64    of a message that follows when it is wanted
//                                                      (comm/flow_window.h), as a frame with the
//                                                      tag announced_tag(id)
//   tag          := epoch:8 source rank:16 Tag's bits:40   from the top
#pragma once

#include <bit>
#include <cstdint>

#include "comm/tickets.h"

namespace gradwire::tcp {

struct Header {
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
};
static_assert(sizeof(Header) == 16);
inline constexpr std::uint64_t kAnnounces = std::uint64_t{1} << 63;  // of Header's bytes
static_assert(std::endian::native == std::endian::little, "it is sent as it lies in memory");

// Connections and queues point to it until they are done with its memory.
struct Op : comm::Message<Op> {
  bool open = true;
  std::uint64_t id = 0;  // of an announced message, sent or asked for; 0: it is none
};
using Batch = comm::Batch<Op>;

}  // namespace gradwire::tcp
