// This host, as its kernel tells of it: who else is on it, and how its processes are.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>

namespace gradwire::comm {

// Each of these three is one word, equal for two processes only if they run on the same boot of the
// same machine and have in common what is said there.

// Their process namespace: a process number means the same to both. "-" where the system does not
// say.
std::string process_space();
// Their network namespace: they can reach each other over loopback. Unique to this process where
// the system does not say, as the next.
std::string network_identity();
// Host name, processes and network: two containers of one machine, or two network namespaces of a
// lab, are two hosts, also where one came after the other.
std::string host_identity();
// 64 bits of that, never 0.
std::uint64_t host_number();

// Processors that this process may run on, at least 1 of 1024: bit i of word w stands for processor
// 64 w + i, the same on all processes of a host.
using Processors = std::array<std::int64_t, 16>;
Processors usable_processors();

// It is stopped, a zombie, or there is no such process (any more). False also where the kernel does
// not tell.
bool has_ended_or_stopped(pid_t pid);

}  // namespace gradwire::comm
