#include "adapters/c/join.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "comm/rendezvous/agree.h"
#include "comm/tcp/interfaces.h"
#include "comm/tcp/tcp_transport.h"
#include "comm/ucx/ucx_transport.h"

namespace gradwire::c {
namespace {

// At least two heartbeats must fit into what a silent rank is allowed.
double heartbeat_of(const Settings& settings) {
  return std::min(1.0, settings.liveness_seconds / 4);
}

bool over_tcp(const Settings& settings) {
  return settings.transport == "tcp" || (settings.transport != "ucx" && !kHaveUcx);
}

// UCX believes whoever connects: where all ranks are on this host it listens to no other.
Result<std::unique_ptr<Transport>> open_transport(const Settings& settings, bool one_host,
                                                  const Rendezvous& rendezvous) {
  if (over_tcp(settings)) {
    TcpOptions options;
    options.heartbeat_seconds = heartbeat_of(settings);
    options.liveness_seconds = settings.liveness_seconds;
    options.interface = settings.interface;
    options.congestion = settings.congestion;
    options.link_rate = settings.link_rate;
    options.log = settings.log;
    return make_tcp_transport(rendezvous, options);
  }
  UcxOptions options;
  options.heartbeat_seconds = heartbeat_of(settings);
  options.liveness_seconds = settings.liveness_seconds;
  options.interfaces =
      settings.interface.empty() && one_host ? tcp::loopback_name() : settings.interface;
  options.log = settings.log;
  return make_ucx_transport(rendezvous, options);
}

CommunicatorOptions options_of(const Settings& settings) {
  CommunicatorOptions options;
  options.deadline_seconds = settings.timeout_seconds;
  options.checksums = settings.checksums;
  options.algorithm = settings.algorithm;
  options.node = settings.node;
  options.flight_folder = settings.flight_folder;
  options.warn = [log = settings.log](std::string_view line) { log(LogLevel::kWarn, line); };
  return options;
}

Result<std::unique_ptr<Communicator>> open(const Settings& settings, const Rendezvous& rendezvous) {
  GW_ASSIGN(CommunicatorOptions options, with_nodes(rendezvous, options_of(settings)));
  const bool one_host = std::ranges::count(options.node_of, 0) == rendezvous.size;
  GW_ASSIGN(auto transport, open_transport(settings, one_host, rendezvous));
  const bool share = settings.transport == "auto" || settings.transport == "shm";
  if (!share) return make_communicator(std::move(transport), options);
  GW_ASSIGN(auto made, make_sharing_communicator(std::move(transport), options));
  const std::string taken = made->describe();
  const bool shared = taken.ends_with("; collectives in shared memory");
  if (settings.transport == "shm" && rendezvous.size > 1 && !shared) {
    return Status(Code::kUnsupported, "transport shm: no shared memory (" + taken + ")");
  }
  return made;
}

}  // namespace

Result<std::unique_ptr<Communicator>> join(const Settings& settings, const Rendezvous& rendezvous) {
  // Ranks that take different ones would wait for one another until the rendezvous gives up.
  GW_TRY(rendezvous::agree_together(rendezvous, "transport", settings.transport));
  GW_TRY(rendezvous::agree(rendezvous, "checksums", settings.checksums ? "1" : "0"));
  GW_TRY(rendezvous::agree(rendezvous, "links", to_string(settings.links)));
  GW_ASSIGN(auto communicator, open(settings, rendezvous));
  GW_TRY(take_links(*communicator, settings.links, links_file(environment)));
  // Nobody needs the store after this.
  GW_ASSIGN(Work met, communicator->barrier());
  GW_TRY(met.wait(deadline_in(settings.rendezvous_seconds)));
  settings.log(LogLevel::kInfo, communicator->describe());
  return communicator;
}

}  // namespace gradwire::c
