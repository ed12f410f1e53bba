#include "adapters/c/join.h"

#include <algorithm>

#include "adapters/launch/connect.h"
#include "adapters/launch/sides.h"

namespace gradwire::c {
namespace {

// At least two heartbeats must fit into what a silent rank is allowed.
double heartbeat_of(const Settings& settings) {
  return std::min(1.0, settings.liveness_seconds / 4);
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

launch::ConnectOptions connection_of(const Settings& settings) {
  return {.transport = settings.transport,
          .messages = {.interface = settings.interface,
                       .congestion = settings.congestion,
                       .link_rate = settings.link_rate,
                       .heartbeat_seconds = heartbeat_of(settings),
                       .liveness_seconds = settings.liveness_seconds,
                       .log = settings.log},
          .links = settings.links,
          .links_file = links_file(environment)};
}

}  // namespace

Result<std::unique_ptr<Communicator>> join(const Settings& settings, const Rendezvous& rendezvous) {
  CommunicatorOptions options = options_of(settings);
  GW_TRY(launch::choose_side_rule(options, rendezvous, environment));
  GW_ASSIGN(auto communicator, launch::connect(rendezvous, connection_of(settings), options));
  // Nobody needs the store after this.
  GW_ASSIGN(Work met, communicator->barrier());
  GW_TRY(met.wait(deadline_in(settings.rendezvous_seconds)));
  settings.log(LogLevel::kInfo, communicator->describe());
  return communicator;
}

}  // namespace gradwire::c
