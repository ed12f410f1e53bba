#include "adapters/launch/launch.h"

#include <utility>
#include <vector>

#include "adapters/launch/variables.h"
#include "base/text.h"
#include "comm/liveness.h"
#include "comm/rendezvous/agree.h"
#include "comm/rendezvous/socket.h"
#include "comm/rendezvous/tcp_place.h"
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

Result<std::unique_ptr<Transport>> make_transport(const std::string& name, const Rendezvous& job,
                                                  double liveness_seconds, const EnvLookup& env,
                                                  const Log& log) {
  if (name == "tcp") {
    TcpOptions tcp;
    tcp.liveness_seconds = liveness_seconds;
    tcp.interface = env("GRADWIRE_IFNAME").value_or("");
    tcp.congestion = env("GRADWIRE_TCP_CONGESTION").value_or("");
    GW_ASSIGN(tcp.link_rate, tcp_rate(env));
    tcp.log = log;
    return make_tcp_transport(job, tcp);
  }
  UcxOptions ucx;
  ucx.liveness_seconds = liveness_seconds;
  ucx.interfaces = ucx_interfaces(on_loopback(root_of(job)), env);
  ucx.log = log;
  return make_ucx_transport(job, ucx);
}

}  // namespace

std::string root_of(const Rendezvous& job) { return rendezvous::place_of(job.store.get()); }

Result<Rendezvous> meet(const LaunchInfo& info, const EnvLookup& env, const Log& log,
                        double timeout_seconds) {
  GW_ASSIGN(const std::string known, secret(env));
  log(LogLevel::kDebug,
      "launched by " + info.source + " (" + info.reason + "), rendezvous " + info.rendezvous);
  return open_rendezvous(info, known, timeout_seconds);
}

Status check_settings(std::string_view transport, const EnvLookup& env) {
  GW_TRY(check_transport(transport));
  if (transport == "ucx" && !kHaveUcx) {
    return {Code::kUnsupported, "transport ucx: this build has none (auto or tcp wanted)"};
  }
  GW_TRY(checksums(env, false).error());
  GW_TRY(links_from_environment(env, LinksFrom::kDefaults).error());
  if (messages_of(transport) != "tcp") return {};
  GW_TRY(tcp_rate(env).error());
  return congestion(env).error();
}

Result<std::unique_ptr<Communicator>> connect(const Rendezvous& rendezvous,
                                              const std::string& transport,
                                              const CommunicatorOptions& options,
                                              const EnvLookup& env, const Log& log,
                                              LinksFrom links) {
  GW_TRY(check_settings(transport, env));
  // Ranks that take different ones would wait for one another until the rendezvous gives up.
  GW_TRY(rendezvous::agree_together(rendezvous, "transport", transport));
  CommunicatorOptions checked = options;
  GW_ASSIGN(checked.checksums, checksums(env, options.checksums));
  GW_TRY(rendezvous::agree(rendezvous, "GRADWIRE_CHECKSUM", checked.checksums ? "1" : "0"));
  GW_TRY(rendezvous::agree(rendezvous, "GRADWIRE_LINKS", to_string(links)));
  const bool share = transport == "auto" || transport == "shm";
  GW_ASSIGN(auto made, make_transport(messages_of(transport), rendezvous,
                                      comm::liveness_for(options.deadline_seconds), env, log));
  checked.warn = [log](std::string_view line) { log(LogLevel::kWarn, line); };
  if (checked.node.empty()) checked.node = env("GRADWIRE_NODE").value_or("");
  GW_ASSIGN(checked, with_nodes(rendezvous, checked));
  GW_ASSIGN(auto communicator, share ? make_sharing_communicator(std::move(made), checked)
                                     : make_communicator(std::move(made), checked));
  const std::string taken = transport_of(*communicator);
  if (transport == "shm" && rendezvous.size > 1 && !taken.ends_with(kSharedMemory)) {
    return Status(Code::kUnsupported, "transport shm: no shared memory (" + taken + ")");
  }
  GW_TRY(take_links(*communicator, links, links_file(env)));
  return communicator;
}

std::string ucx_interfaces(bool loopback, const EnvLookup& env) {
  if (const auto wanted = env("GRADWIRE_IFNAME")) return *wanted;
  return loopback ? tcp::loopback_name() : "";
}

std::string messages_of(std::string_view transport) {
  if (transport != "auto" && transport != "shm") return std::string(transport);
  return kHaveUcx ? "ucx" : "tcp";
}

std::string transport_of(const Communicator& communicator) {
  const std::string text = communicator.describe();
  const std::size_t over = text.find(" over ");
  return over == std::string::npos ? text : text.substr(over + 6);
}

}  // namespace gradwire::launch
