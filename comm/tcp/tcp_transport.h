// Ranks as processes, over TCP connections of our own.
#pragma once

#include <memory>
#include <string>

#include "base/log.h"
#include "gradwire/rendezvous.h"
#include "gradwire/status.h"
#include "gradwire/transport.h"

namespace gradwire {

struct TcpOptions {
  double heartbeat_seconds = 1;
  // A rank that nothing was heard of for so long is lost. At least two heartbeats.
  double liveness_seconds = 5;
  // Names or addresses, the first that is up counts ("eth1,eth0"); empty: the first interface that
  // leads to other hosts. Ranks of one host (network namespace) use loopback between them.
  std::string interface = {};
  // Congestion control of bulk connections; empty: see comm/tcp/sockets.h.
  std::string congestion = {};
  // Bytes per second that a link to other hosts carries, where it is slow and has a deep queue: a
  // connection sends at most at twice that. 0: as fast as it can.
  double link_rate = 0;
  Log log = {};  // info: addresses and connections; warn: losses
};

// Collective: returns when this rank is connected with all others, or kTimedOut (the rendezvous'
// timeout) naming a rank that is missing. Connections are proved with a key that lies in the
// rendezvous' store, and with Rendezvous::secret if it is not empty; once all are there, no port is
// open any more. Data itself is neither sealed nor encrypted.
//
// progress() or wait() must run at least every heartbeat, or the others take this rank for dead
// after liveness_seconds. A rank that was itself kept from running does not take the others for
// dead because of that.
//
// A send settles when the kernel has taken it, which is at the latest when its receive is posted.
Result<std::unique_ptr<Transport>> make_tcp_transport(const Rendezvous& rendezvous,
                                                      const TcpOptions& options = {});

}  // namespace gradwire
