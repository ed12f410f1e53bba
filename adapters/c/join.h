// How the ranks of a job come to a communicator: what options and environment say, and how it is
// made where they meet.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "adapters/links.h"
#include "base/log.h"
#include "gradwire/c/communicator.h"
#include "gradwire/communicator.h"
#include "gradwire/config.h"
#include "gradwire/rendezvous.h"
#include "gradwire/status.h"

namespace gradwire::c {

// nullopt when unset or empty. Fits EnvLookup of gradwire/config.h.
std::optional<std::string> environment(const std::string& name);

// gw_comm_options with what they leave open read from the environment.
struct Settings {
  double liveness_seconds = 15;
  double timeout_seconds = 300;
  double rendezvous_seconds = 60;
  std::string transport = "auto";
  std::string interface = {};
  std::string algorithm = "auto";
  LinksFrom links = LinksFrom::kDefaults;
  LaunchArguments launch = {};  // what was given instead of a launcher's; a job's name always
  std::string secret = {};
  std::string flight_folder = {};
  bool checksums = false;
  std::string congestion = {};  // of tcp
  double link_rate = 0;
  std::string node = {};
  Log log = {};
};
// kInvalidArgument names the field or the variable, the value seen and the value wanted.
Result<Settings> read_settings(const char* function, const gw_comm_options* given);

// Collective over the job's ranks, which meet in the rendezvous' store; it is not needed any more
// when this has returned on all ranks.
Result<std::unique_ptr<Communicator>> join(const Settings& settings, const Rendezvous& rendezvous);

// The address of this host that other hosts should use; empty where there is none.
Result<std::string> outward_address(const Settings& settings);

}  // namespace gradwire::c
