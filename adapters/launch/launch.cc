#include "adapters/launch/launch.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "base/text.h"
#include "comm/liveness.h"
#include "comm/rendezvous/agree.h"
#include "comm/rendezvous/socket.h"
#include "comm/rendezvous/tcp_place.h"
#include "comm/tcp/interfaces.h"
#include "comm/tcp/sockets.h"
#include "comm/tcp/tcp_transport.h"
#include "comm/ucx/ucx_transport.h"

namespace gradwire::launch {
namespace {

Status bad(const char* variable, const std::string& seen, const char* wanted) {
  return {Code::kInvalidArgument, std::string("bad value for ") + variable + " ('" + seen +
                                      "' seen; " + wanted + " wanted)"};
}

Result<bool> checksums(const EnvLookup& env, bool otherwise) {
  const std::string value = env("GRADWIRE_CHECKSUM").value_or(otherwise ? "1" : "0");
  if (value == "0" || value == "1") return value == "1";
  return bad("GRADWIRE_CHECKSUM", value, "0 or 1");
}

Result<double> tcp_rate(const EnvLookup& env) {
  const auto value = env("GRADWIRE_TCP_RATE");
  if (!value) return 0.0;
  const auto rate = to_double(*value);
  if (rate && *rate >= 1e3 && *rate <= 1e12) return *rate;
  return bad("GRADWIRE_TCP_RATE", *value, "bytes per second, 1e3 to 1e12,");
}

Status usable_congestion(const EnvLookup& env) {
  const auto name = env("GRADWIRE_TCP_CONGESTION");
  if (!name) return {};
  return tcp::check_congestion(*name).with_context("bad value for GRADWIRE_TCP_CONGESTION");
}

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

Result<std::string> secret(const EnvLookup& env) {
  if (const auto given = env("GRADWIRE_SECRET")) return *given;
  const auto path = env("GRADWIRE_SECRET_FILE");
  if (!path) return std::string();
  std::ifstream file(*path, std::ios::binary);
  std::string contents{std::istreambuf_iterator<char>(file), {}};
  if (!file)
    return Status(Code::kInvalidArgument, "GRADWIRE_SECRET_FILE: cannot read '" + *path + "'");
  while (!contents.empty() && (contents.back() == '\n' || contents.back() == '\r'))
    contents.pop_back();
  if (!contents.empty()) return contents;
  return Status(Code::kInvalidArgument,
                "GRADWIRE_SECRET_FILE: '" + *path + "' is empty (a secret wanted)");
}

Result<Rendezvous> meet(const LaunchInfo& info, const EnvLookup& env, const Log& log,
                        double timeout_seconds) {
  GW_ASSIGN(const std::string known, secret(env));
  log(LogLevel::kDebug,
      "launched by " + info.source + " (" + info.reason + "), rendezvous " + info.rendezvous);
  return open_rendezvous(info, known, timeout_seconds);
}

Status check_settings(std::string_view transport, const EnvLookup& env) {
  constexpr std::array<std::string_view, 4> kTransports{"auto", "shm", "ucx", "tcp"};
  if (std::ranges::find(kTransports, transport) == kTransports.end()) {
    return {Code::kInvalidArgument, "no transport '" + std::string(transport) +
                                        "' between processes (auto, shm, ucx or tcp wanted)"};
  }
  if (transport == "ucx" && !kHaveUcx) {
    return {Code::kUnsupported, "transport ucx: this build has none (auto or tcp wanted)"};
  }
  GW_TRY(checksums(env, false).error());
  GW_TRY(links_from_environment(env, LinksFrom::kDefaults).error());
  if (messages_of(transport) != "tcp") return {};
  GW_TRY(tcp_rate(env).error());
  return usable_congestion(env);
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
