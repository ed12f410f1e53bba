#include "adapters/launch/launch.h"

#include "adapters/launch/sides.h"
#include "adapters/launch/variables.h"
#include "comm/liveness.h"
#include "comm/rendezvous/agree.h"
#include "comm/tcp/interfaces.h"

namespace gradwire::launch {

Result<Rendezvous> meet(const LaunchInfo& info, const EnvLookup& env, const Log& log,
                        double timeout_seconds) {
  GW_ASSIGN(const std::string known, secret(env));
  log(LogLevel::kDebug,
      "launched by " + info.source + " (" + info.reason + "), rendezvous " + info.rendezvous);
  return open_rendezvous(info, known, timeout_seconds);
}

void tell_absence(const LaunchInfo& info, const EnvLookup& env, const Log& log, const Status& why) {
  constexpr double kPatience = 10;
  if (info.size <= 1) return;
  const auto met = meet(info, env, log, kPatience);
  if (!met.has_value()) return;  // nobody is there to be told
  const std::string reason = "none: " + std::string(why.message());
  static_cast<void>(rendezvous::agree(met.value(), kTransportAgreement, reason));
}

Status check_settings(std::string_view transport, const EnvLookup& env) {
  GW_TRY(check_transport(transport));
  GW_TRY(checksums(env, false).error());
  GW_TRY(links_from_environment(env, LinksFrom::kDefaults).error());
  if (transport == "ucx") return {};  // all others may come to tcp, if only for another rank's sake
  GW_TRY(tcp_rate(env).error());
  return congestion(env).error();
}

Result<std::unique_ptr<Communicator>> connect(const Rendezvous& rendezvous,
                                              const std::string& transport,
                                              const CommunicatorOptions& options,
                                              const EnvLookup& env, const Log& log,
                                              LinksFrom links) {
  GW_TRY(check_settings(transport, env));
  ConnectOptions how{.transport = transport, .messages = {}, .links = links};
  how.links_file = links_file(env);
  how.messages.interface = env("GRADWIRE_IFNAME").value_or("");
  if (transport != "ucx") {  // also where this rank has UCX: another may have none
    GW_ASSIGN(how.messages.congestion, congestion(env));
    GW_ASSIGN(how.messages.link_rate, tcp_rate(env));
  }
  how.messages.liveness_seconds = comm::liveness_for(options.deadline_seconds);
  how.messages.log = log;
  CommunicatorOptions checked = options;
  GW_ASSIGN(checked.checksums, checksums(env, options.checksums));
  checked.warn = [log](std::string_view line) { log(LogLevel::kWarn, line); };
  GW_TRY(choose_side_rule(checked, rendezvous, env));
  if (checked.node.empty()) checked.node = env("GRADWIRE_NODE").value_or("");
  return connect(rendezvous, how, checked);
}

std::string ucx_interfaces(bool loopback, const EnvLookup& env) {
  if (const auto wanted = env("GRADWIRE_IFNAME")) return *wanted;
  return loopback ? tcp::loopback_name() : "";
}

}  // namespace gradwire::launch
