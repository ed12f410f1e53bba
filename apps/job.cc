#include "apps/job.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "adapters/launch/join_notice.h"
#include "apps/environment.h"
#include "apps/flight_folder.h"
#include "base/text.h"
#include "collectives/device/nccl_backend.h"

namespace gradwire {
namespace {

constexpr double kLongestDeadline = 1e9;  // seconds; also what gradwire run takes

}  // namespace

Status check_settings(const std::string& transport) {
  GW_TRY(launch::check_settings(transport, environment));
  return check_flight_folder(flight_folder(""));
}

Result<launch::RankPlace> place_process(const LaunchInfo& launch, const launch::DeviceName& device,
                                        std::string_view transport, const Log& log) {
  auto place = launch::place_rank(device, transport, launch.local_rank);
  if (!place.has_value()) launch::tell_absence(launch, environment, log, place.error());
  return place;
}

Result<JoinedJob> join_job(const LaunchInfo& launch, const std::string& transport,
                           const CommunicatorOptions& options, const Log& log, LinksFrom links) {
  GW_TRY(check_settings(transport));
  GW_ASSIGN(const launch::RankPlace place, place_process(launch, {}, transport, log));
  JoinedJob job;
  launch::tell_launcher(environment, launch::JoinStep::kMeeting);
  GW_ASSIGN(job.rendezvous, launch::meet(launch, environment, log));
  CommunicatorOptions recorded = options;
  recorded.flight_folder = flight_folder(options.flight_folder);
  GW_ASSIGN(job.communicator,
            launch::connect(job.rendezvous, place.transport, recorded, environment, log, links));
  launch::tell_launcher(environment, launch::JoinStep::kJoined);
  job.launcher = LauncherWatch::start(environment("GRADWIRE_LAUNCHER").value_or(""),
                                      *job.communicator, recorded.flight_folder);
  return job;
}

Result<std::vector<launch::RankPlace>> place_threads(const launch::DeviceName& device,
                                                     const std::string& transport, int ranks) {
  std::vector<launch::RankPlace> places;
  for (int rank = 0; rank < ranks; ++rank) {
    GW_ASSIGN(launch::RankPlace place, launch::place_rank(device, transport, rank));
    places.push_back(std::move(place));
  }
  return places;
}

Status join_threads(GroupCommunicator& world, const launch::RankPlace& place) {
  if (!is_nccl(place.transport)) return {};
  GW_ASSIGN(const std::optional<int> ordinal, nccl_ordinal(place.transport));
  return add_nccl(world, ordinal, Rendezvous{}.timeout_seconds);
}

void log_place(const Log& log, const launch::RankPlace& place) {
  if (place.device.space == MemorySpace::kHost) return;
  log(LogLevel::kInfo, "uses " + launch::to_string(place.device));
}

std::string transport_from_environment() {
  return environment("GRADWIRE_TRANSPORT").value_or("auto");
}

Result<double> deadline_from_environment(double otherwise) {
  const auto text = environment("GRADWIRE_DEADLINE");
  if (!text) return otherwise;
  const auto seconds = to_double(*text);
  if (seconds && *seconds > 0 && *seconds <= kLongestDeadline) return *seconds;
  return Status(Code::kInvalidArgument,
                "GRADWIRE_DEADLINE must be seconds above 0, at most 1e9 (got '" + *text + "')");
}

int fail_promptly(const Status& error, int exit_status) {
  std::fflush(stdout);
  std::fprintf(stderr, "gradwire: error: %.*s\n", static_cast<int>(error.message().size()),
               error.message().data());
  std::fflush(stderr);
  // Destructors close connections to the other ranks, but may not delay the end.
  std::thread([exit_status] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    std::_Exit(exit_status);
  }).detach();
  return exit_status;
}

}  // namespace gradwire
