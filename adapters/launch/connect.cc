#include "adapters/launch/connect.h"

#include <algorithm>
#include <utility>

#include "adapters/launch/variables.h"
#include "collectives/device/nccl_backend.h"
#include "collectives/group_communicator.h"
#include "comm/rendezvous/agree.h"
#include "comm/rendezvous/socket.h"
#include "comm/rendezvous/tcp_store.h"
#include "comm/tcp/interfaces.h"
#include "comm/tcp/tcp_transport.h"
#include "comm/ucx/ucx_transport.h"

namespace gradwire::launch {
namespace {

// Rank 0 serves where only its own host can come: so all are there.
bool on_loopback(const std::string& place) {
  const auto where = rendezvous::parse_host_port(place);
  if (!where.has_value()) return false;
  const std::string& host = where.value().host;
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// What ranks agree on: which device each brings is its own business.
std::string_view kind_of(std::string_view transport) {
  return is_nccl(transport) ? transport.substr(0, transport.find(':')) : transport;
}

Result<std::unique_ptr<Communicator>> over(std::unique_ptr<Transport> messages,
                                           const std::string& transport,
                                           const CommunicatorOptions& options,
                                           const Rendezvous& rendezvous) {
  if (transport == "auto" || transport == "shm") {
    return make_sharing_communicator(std::move(messages), options);
  }
  GW_ASSIGN(auto world, make_group_communicator(std::move(messages), options));
  if (is_nccl(transport)) {
    GW_ASSIGN(const std::optional<int> ordinal, nccl_ordinal(transport));
    GW_TRY(add_nccl(*world, ordinal, rendezvous.timeout_seconds));
  }
  return std::unique_ptr<Communicator>(std::move(world));
}

// Collective. Where the transport leaves it open: UCX if every rank has it, else tcp.
Result<std::string> carrier_of(const Rendezvous& rendezvous, const std::string& transport,
                               const Log& log) {
  std::string carrier = messages_of(transport);
  if (carrier == transport) return carrier;
  GW_ASSIGN(const bool all, rendezvous::everywhere(rendezvous, "ucx", carrier == "ucx"));
  if (all) return carrier;
  if (kHaveUcx) {
    const Status here = ucx::load();
    log(LogLevel::kInfo, "transport " + transport + ": messages go over tcp: " +
                             (here.ok() ? "another rank has no UCX" : std::string(here.message())));
  }
  return std::string("tcp");
}

}  // namespace

Result<std::unique_ptr<Transport>> open_messages(const MessageOptions& options, bool one_host,
                                                 const Rendezvous& rendezvous) {
  if (options.carrier == "tcp") {
    return make_tcp_transport(rendezvous, {.heartbeat_seconds = options.heartbeat_seconds,
                                           .liveness_seconds = options.liveness_seconds,
                                           .interface = options.interface,
                                           .congestion = options.congestion,
                                           .link_rate = options.link_rate,
                                           .log = options.log});
  }
  UcxOptions ucx;
  ucx.heartbeat_seconds = options.heartbeat_seconds;
  ucx.liveness_seconds = options.liveness_seconds;
  ucx.interfaces = options.interface.empty() && one_host ? tcp::loopback_name() : options.interface;
  ucx.log = options.log;
  return make_ucx_transport(rendezvous, ucx);
}

Result<std::unique_ptr<Communicator>> connect(const Rendezvous& rendezvous,
                                              const ConnectOptions& options,
                                              const CommunicatorOptions& communicator) {
  GW_TRY(check_transport(options.transport));
  // Ranks that take different ones would wait for one another until the rendezvous gives up.
  GW_TRY(rendezvous::agree(rendezvous, kTransportAgreement, kind_of(options.transport)));
  const auto same = [&](std::string_view name, std::string_view value) {
    return rendezvous::agree(rendezvous, name, value);
  };
  GW_TRY(same("GRADWIRE_CHECKSUM", communicator.checksums ? "1" : "0"));
  GW_TRY(same("GRADWIRE_LINKS", to_string(options.links)));
  GW_ASSIGN(const CommunicatorOptions known, with_nodes(rendezvous, communicator));
  const bool one_host =
      on_loopback(root_of(rendezvous)) || std::ranges::count(known.node_of, 0) == rendezvous.size;
  MessageOptions carried = options.messages;
  GW_ASSIGN(carried.carrier, carrier_of(rendezvous, options.transport, carried.log));
  GW_ASSIGN(auto messages, open_messages(carried, one_host, rendezvous));
  GW_ASSIGN(auto made, over(std::move(messages), options.transport, known, rendezvous));
  if (options.transport == "shm" && rendezvous.size > 1 &&
      made->shared_memory() != SharedMemory::kAllRanks) {
    return Status(Code::kUnsupported,
                  "transport shm: no shared memory (" + transport_of(*made) + ")");
  }
  GW_TRY(take_links(*made, options.links, options.links_file));
  return made;
}

std::string messages_of(std::string_view transport) {
  if (transport == "ucx" || transport == "tcp") return std::string(transport);
  return ucx::load().ok() ? "ucx" : "tcp";
}

std::string transport_of(const Communicator& communicator) {
  const std::string text = communicator.describe();
  const std::size_t over = text.find(" over ");
  return over == std::string::npos ? text : text.substr(over + 6);
}

std::string root_of(const Rendezvous& job) { return rendezvous::place_of(job.store.get()); }

}  // namespace gradwire::launch
