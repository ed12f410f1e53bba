// From the environment of a launched process to its place in a job and to its communicator: the one
// way for programs, the C interface and whatever else starts with nothing but an environment. Which
// launchers there are, and in which order they count: discover_launch() of gradwire/config.h.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "adapters/launch/connect.h"
#include "adapters/links.h"
#include "base/log.h"
#include "gradwire/communicator.h"
#include "gradwire/config.h"
#include "gradwire/rendezvous.h"
#include "gradwire/status.h"

namespace gradwire::launch {

// Collective over the job's processes: meets them as `info` says, with the secret that the
// variables give.
// discover_launch(env, arguments) gives `info`: rank, size, local rank, launcher and why; the
// address of rank 0 is known after this alone: root_of().
Result<Rendezvous> meet(const LaunchInfo& info, const EnvLookup& env, const Log& log,
                        double timeout_seconds = 60);

// For a rank that knows before it has met the others that it cannot take part, say for want of a
// device: their connect() says which rank that is, and `why`, instead of waiting for it. Waits 10 s
// for them, at most.
void tell_absence(const LaunchInfo& info, const EnvLookup& env, const Log& log, const Status& why);

// What each rank's connect(transport) would refuse without having met the others: the transport's
// name, GRADWIRE_CHECKSUM, GRADWIRE_LINKS, and for every transport but ucx GRADWIRE_TCP_CONGESTION
// and GRADWIRE_TCP_RATE. For who starts the ranks, to say it once.
Status check_settings(std::string_view transport, const EnvLookup& env);

// Collective over the ranks of `rendezvous`, which met as above or in any other way (a store of the
// caller's own): connects them over `transport`: "ucx" or "tcp"; "auto", which is the first of
// these that the build has, and shared memory where all are on one host; "shm", which is that or an
// error; "nccl" or "nccl:N", which is NCCL for tensors on CUDA devices beside messages as "auto"
// has them, with this rank's device, or device N. tcp: GRADWIRE_IFNAME says which interface or
// address others should use (of several, the first that is up), GRADWIRE_TCP_CONGESTION which
// congestion control, GRADWIRE_TCP_RATE how many bytes a second a slow link carries. ucx:
// GRADWIRE_IFNAME says which interfaces to use, all of several. GRADWIRE_NODE names this rank's
// node where that is not its host: ranks that say the same are on one. GRADWIRE_CHECKSUM=1 gives
// every message a checksum (shared memory and NCCL have none); kRankMismatch where ranks differ in
// that. links: equal on all ranks, which kRankMismatch says.
Result<std::unique_ptr<Communicator>> connect(const Rendezvous& rendezvous,
                                              const std::string& transport,
                                              const CommunicatorOptions& options,
                                              const EnvLookup& env, const Log& log,
                                              LinksFrom links = LinksFrom::kDefaults);

// GRADWIRE_IFNAME; without it, the loopback interface where `loopback` says that all ranks are on
// this host (UCX, which believes whoever connects, should then listen to no other); else "". As
// UcxOptions::interfaces.
std::string ucx_interfaces(bool loopback, const EnvLookup& env);

}  // namespace gradwire::launch
