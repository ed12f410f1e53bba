// Which processes can share memory.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace gradwire::shm {

// Equal for two processes only if they run on the same boot of the same machine and see the same
// host name, processes and network: two containers of one machine, or two network namespaces of a
// lab, are two hosts, also where one came after the other. Unique to this process where the system
// does not say.
std::string host_identity();

// 64 bits of it, never 0.
std::uint64_t hash_of_host(const std::string& identity);

// Processors that this process may run on, at least 1 of 1024: bit i of word w stands for processor
// 64 w + i, the same on all processes of a host.
using Processors = std::array<std::int64_t, 16>;
Processors usable_processors();

}  // namespace gradwire::shm
