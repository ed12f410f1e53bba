// Ranks as processes, over UCX tag matching.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "base/log.h"
#include "gradwire/rendezvous.h"
#include "gradwire/status.h"
#include "gradwire/transport.h"

namespace gradwire {

// Whether this build has UCX; without, make_ucx_transport() is kUnsupported.
extern const bool kHaveUcx;

// Ok once the UCX libraries are in the process. A program that links them has them from its start;
// libgradwire.so has its own definition of this, which loads them (loaded_ucx.cc), and of UCX's
// functions, which pass their calls on. kUnsupported names the library, what the loader said, and
// the package; or says that this build has no UCX.
namespace ucx {
Status load();
}

struct UcxOptions {
  double heartbeat_seconds = 1;
  // A rank that nothing was heard of for so long is lost. At least two heartbeats.
  double liveness_seconds = 5;
  // Between processes of one host that may read each other's memory (process_vm_readv), messages of
  // more than `single_copy_bytes` are copied once, by the receiver. SIZE_MAX: never.
  std::size_t single_copy_bytes = 32768;
  // Network interfaces to use, with commas between: "eth0", "eth0,eth1", "mlx5_0:1". "": all that
  // are up, without the bridges of containers. UCX_NET_DEVICES in the environment goes before.
  std::string interfaces = {};
  // Connections are made when they are needed; not said: unless the library is known to break then.
  std::optional<bool> connects_late = {};
  Log log;  // info: UCX version and the transports taken; warn: losses
};

// Collective: returns when this rank has heard from its neighbours, two to each side, or from all
// others where none is connected late, or kTimedOut (the rendezvous'
// timeout) naming the rank that is missing.
//
// progress() or wait() must run at least every heartbeat, or the others take this rank for dead
// after liveness_seconds: heartbeats come from them. A rank that was itself kept from running does
// not take the others for dead because of that.
//
// UCX is set up for peer error handling: each of the settings in settings.cc is made unless the
// environment has the variable. UCX 1.13 to 1.19 install handlers for SIGSEGV and the like when the
// library is loaded; they are taken out here, unless UCX_HANDLE_ERRORS is set. A program that wants
// them never to be there sets UCX_HANDLE_ERRORS=none before it is started.
Result<std::unique_ptr<Transport>> make_ucx_transport(const Rendezvous& rendezvous,
                                                      const UcxOptions& options = {});

}  // namespace gradwire
