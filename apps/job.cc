#include "apps/job.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "apps/environment.h"
#include "apps/flight_folder.h"
#include "base/text.h"

namespace gradwire {
namespace {

constexpr double kLongestDeadline = 1e9;  // seconds; also what gradwire run takes

}  // namespace

Status check_settings(const std::string& transport) {
  GW_TRY(launch::check_settings(transport, environment));
  return check_flight_folder(flight_folder(""));
}

Result<JoinedJob> join_job(const LaunchInfo& launch, const std::string& transport,
                           const CommunicatorOptions& options, const Log& log, LinksFrom links) {
  GW_TRY(check_settings(transport));
  JoinedJob job;
  GW_ASSIGN(job.rendezvous, launch::meet(launch, environment, log));
  CommunicatorOptions recorded = options;
  recorded.flight_folder = flight_folder(options.flight_folder);
  GW_ASSIGN(job.communicator,
            launch::connect(job.rendezvous, transport, recorded, environment, log, links));
  job.launcher =
      LauncherWatch::start(environment("GRADWIRE_LAUNCHER").value_or(""), *job.communicator);
  return job;
}

std::string transport_from_environment() {
  return environment("GRADWIRE_TRANSPORT").value_or("auto");
}

Result<double> deadline_from_environment(double otherwise) {
  const auto text = environment("GRADWIRE_DEADLINE");
  if (!text) return otherwise;
  const auto seconds = to_double(*text);
  if (seconds && *seconds > 0 && *seconds <= kLongestDeadline) return *seconds;
  return Status(Code::kInvalidArgument, "bad value for GRADWIRE_DEADLINE ('" + *text +
                                            "' seen; seconds above 0, at most 1e9, wanted)");
}

int fail_promptly(const Status& error) {
  std::fflush(stdout);
  std::fprintf(stderr, "gradwire: error: %.*s\n", static_cast<int>(error.message().size()),
               error.message().data());
  std::fflush(stderr);
  // Destructors say goodbye to the other ranks, but may not hold the process up.
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    std::_Exit(1);
  }).detach();
  return 1;
}

}  // namespace gradwire
