// From the environment of a launched process to its communicator.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "adapters/links.h"
#include "apps/launcher_watch.h"
#include "base/log.h"
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

// Collective over the job's processes: meets them where `launch` says and connects to them over
// `transport`: "ucx" or "tcp"; "auto", which is the first of these that the build has, and shared
// memory where all are on one host; "shm", which is that or an error. The secret is
// GRADWIRE_SECRET, or the contents of the file that GRADWIRE_SECRET_FILE names. tcp:
// GRADWIRE_IFNAME says which interface or address others should use (of several, the first that is
// up), GRADWIRE_TCP_CONGESTION which congestion control, GRADWIRE_TCP_RATE how many bytes a second
// a slow link carries. ucx: GRADWIRE_IFNAME says which interfaces to use, all of several.
// GRADWIRE_NODE names this rank's node where that is not its host: ranks that say the same are on
// one. GRADWIRE_CHECKSUM=1 gives every message a checksum (shared memory needs none); kRankMismatch
// where ranks differ in that. links: equal on all ranks, which kRankMismatch says.
Result<JoinedJob> join_job(const LaunchInfo& launch, const std::string& transport,
                           const CommunicatorOptions& options, const Log& log,
                           LinksFrom links = LinksFrom::kDefaults);

// What each rank's join_job(transport) would refuse without having met the others: the transport's
// name, GRADWIRE_CHECKSUM, GRADWIRE_LINKS, GRADWIRE_FLIGHT, and for tcp GRADWIRE_TCP_CONGESTION and
// GRADWIRE_TCP_RATE. For who starts the ranks, to say it once.
Status check_settings(const std::string& transport);

// GRADWIRE_IFNAME; without it, the loopback interface for a job whose rendezvous is on loopback
// (all ranks are on this host, and UCX, which believes whoever connects, should listen to no
// other); else "". As UcxOptions::interfaces.
std::string ucx_interfaces(const LaunchInfo& launch);

// What `bench` and `doctor` take where no flag says it: GRADWIRE_TRANSPORT, else auto.
std::string transport_from_environment();

// What carries the messages of such a job: "ucx" or "tcp", as given or for "auto" and "shm".
std::string messages_of(const std::string& transport);

// How the text below ends where ranks share memory.
inline constexpr std::string_view kSharedMemory = "; collectives in shared memory";
// What is in it where ranks share memory inside each of several hosts.
inline constexpr std::string_view kSharedInside = "; shared memory inside ";

// What carries its bytes, for people: "ucx 1.13.1: ..." of "communicator 0: rank 0 of 4 over ucx
// 1.13.1: ...".
std::string transport_of(const Communicator& communicator);

// Seconds that one operation may take: GRADWIRE_DEADLINE, which `gradwire run --deadline` sets,
// else `otherwise`.
Result<double> deadline_from_environment(double otherwise);

// Prints the error of a rank of a job and returns its exit status. The process ends soon after,
// whatever its destructors wait for: other ranks and the launcher count on it.
int fail_promptly(const Status& error);

}  // namespace gradwire
