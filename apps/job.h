// From the environment of a launched process to its communicator.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/launch/launch.h"
#include "adapters/launch/rank_place.h"
#include "adapters/links.h"
#include "apps/launcher_watch.h"
#include "base/log.h"
#include "collectives/group_communicator.h"
#include "gradwire/communicator.h"
#include "gradwire/config.h"
#include "gradwire/rendezvous.h"
#include "gradwire/status.h"

namespace gradwire {

// One rank of a job of processes. The communicator goes before the store it was made from.
struct JoinedJob {
  Rendezvous rendezvous;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<LauncherWatch> launcher = {};  // under gradwire run
};

// launch::place_rank() of this process; where that fails the job's other processes hear of it
// (launch::tell_absence()).
Result<launch::RankPlace> place_process(const LaunchInfo& launch, const launch::DeviceName& device,
                                        std::string_view transport, const Log& log);

// Collective over the job's processes: launch::meet() and launch::connect() with this process's
// environment, which say what each variable does. Flight records go where `options` or
// GRADWIRE_FLIGHT say. "nccl" without a number takes the device of the launcher's local rank.
Result<JoinedJob> join_job(const LaunchInfo& launch, const std::string& transport,
                           const CommunicatorOptions& options, const Log& log,
                           LinksFrom links = LinksFrom::kDefaults);

// Where the ranks are that are threads of this process: rank r counts as local rank r. As
// launch::place_rank().
Result<std::vector<launch::RankPlace>> place_threads(const launch::DeviceName& device,
                                                     const std::string& transport, int ranks);
// Collective over threads, each of which plays a rank of `world`, in process: adds NCCL where the
// rank's transport says so.
Status join_threads(GroupCommunicator& world, const launch::RankPlace& place);

// Tells of the device that a rank took.
void log_place(const Log& log, const launch::RankPlace& place);

// What each rank's join_job(transport) would refuse without having met the others: as
// launch::check_settings(), and GRADWIRE_FLIGHT.
Status check_settings(const std::string& transport);

// What `bench` and `doctor` take where no flag says it: GRADWIRE_TRANSPORT, else auto.
std::string transport_from_environment();

using launch::messages_of;
using launch::transport_of;

// Seconds that one operation may take: GRADWIRE_DEADLINE, which `gradwire run --deadline` sets,
// else `otherwise`.
Result<double> deadline_from_environment(double otherwise);

// Prints the error of a rank of a job and returns its exit status. The process ends soon after,
// whatever its destructors wait for: other ranks and the launcher count on it.
int fail_promptly(const Status& error, int exit_status = 1);

}  // namespace gradwire
