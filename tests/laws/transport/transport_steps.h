// Steps that the laws of Transport are written in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/transport.h"

namespace gradwire::laws {

using Bytes = std::vector<std::byte>;

// Bytes that differ by position, length and seed, so that a shifted or mixed-up message shows.
// A megabyte takes a busy machine long: `alive` goes on meanwhile, so that nobody misses its
// heartbeats.
Bytes pattern(std::size_t size, std::uint64_t seed, Transport* alive = nullptr);

// Communicator 1, channel 0.
Tag tag(std::uint64_t operation);

Transfer send(int peer, Tag tag, Bytes& data);
Transfer recv(int peer, Tag tag, Bytes& data);

Ticket post(Transport& transport, std::initializer_list<Transfer> batch);

// Drives the transport until the ticket settles; kTimedOut (never a code of a settled ticket here)
// at the deadline.
Status settle(Transport& transport, Ticket ticket, Deadline until);
Status exchange(Transport& transport, std::initializer_list<Transfer> batch, Deadline until);

// Drives the transport until it names a lost rank; -1 at the deadline.
int first_lost(Transport& transport, Deadline until);

// Drives the transport (so that it keeps telling that it lives) for that long.
void idle(Transport& transport, double seconds);

}  // namespace gradwire::laws
