// What the kernel is asked to do for the connections between ranks.
#pragma once

#include <string>

#include "comm/rendezvous/socket.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire::tcp {

// kInvalidArgument, with what the kernel lists, where a socket of this machine cannot have the
// congestion control `name`: unknown there, or not allowed to this user.
Status check_congestion(const std::string& name);

// `congestion`: the name of a congestion control, or empty: the machine's own to other hosts, and
// between ranks of one host "reno", under which a loopback connection is twice as fast as under
// BBR. Where that may not be chosen, or the kernel does not know it, the machine's own stays.
void prepare_bulk(int fd, bool same_host, const std::string& congestion);

// A control connection whose other end has answered nothing for `patience` is ended by the kernel.
// Bulk connections have no such limit: a rank that is slow to take a message is no failure.
void prepare_control(int fd, Deadline::duration patience);

// What is sent there leaves no faster, and waits in this socket, not in the link's queue.
void limit_rate(int fd, double bytes_per_second);

// "bbr": what carries a connection that prepare_bulk() has prepared.
std::string congestion_of(bool same_host, const std::string& congestion);

}  // namespace gradwire::tcp
