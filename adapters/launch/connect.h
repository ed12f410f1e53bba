// From ranks that have met to their communicator: what a job's environment and options have said,
// as values, for programs, the C interface and MPI's collectives.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "adapters/links.h"
#include "base/log.h"
#include "gradwire/communicator.h"
#include "gradwire/rendezvous.h"
#include "gradwire/status.h"
#include "gradwire/transport.h"

namespace gradwire::launch {

// What carries messages, and how. As TcpOptions and UcxOptions.
struct MessageOptions {
  std::string carrier = {};     // "ucx" or "tcp"
  std::string interface = {};   // GRADWIRE_IFNAME
  std::string congestion = {};  // of tcp
  double link_rate = 0;         // of tcp
  double heartbeat_seconds = 1;
  double liveness_seconds = 5;
  Log log = {};
};

// Collective. one_host: all ranks are on this host; UCX, which believes whoever connects, listens
// to no other then, where no interface is named.
Result<std::unique_ptr<Transport>> open_messages(const MessageOptions& options, bool one_host,
                                                 const Rendezvous& rendezvous);

struct ConnectOptions {
  std::string transport = "auto";  // as check_transport() takes it
  MessageOptions messages = {};    // of which the transport says what carries them
  LinksFrom links = LinksFrom::kDefaults;
  std::string links_file = {};
};

// Collective over the ranks of `rendezvous`, which met in any way: connects them over
// options.transport, of which all but the number in "nccl:N" is equal on all ranks; so are links
// and communicator.checksums. kRankMismatch says what is not, on all ranks for the transport.
// "auto" and "shm" share memory where all ranks are on one host; "shm" is that or kUnsupported.
// "nccl" is add_nccl() over messages as "auto" would send them.
Result<std::unique_ptr<Communicator>> connect(const Rendezvous& rendezvous,
                                              const ConnectOptions& options,
                                              const CommunicatorOptions& communicator);

// What ranks agree on first.
inline constexpr std::string_view kTransportAgreement = "transport";

// What carries the messages of such a job: "ucx" or "tcp", as given; else "ucx" where this process
// has its libraries. A job all of whose ranks would say "ucx" takes it, any other job tcp.
std::string messages_of(std::string_view transport);

// What carries a communicator's bytes, for people: "ucx 1.13.1: ..." of "communicator 0: rank 0 of
// 4 over ucx 1.13.1: ...".
std::string transport_of(const Communicator& communicator);

// "host:port" of rank 0's store; "" where there is none, or one without an address.
std::string root_of(const Rendezvous& job);

}  // namespace gradwire::launch
