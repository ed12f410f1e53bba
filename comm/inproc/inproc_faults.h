// How tests take a rank of make_inproc_transports() out of service. Both may be called from any
// thread, and do nothing to a transport that is not in-process.
#pragma once

#include "gradwire/transport.h"

namespace gradwire {

// As SIGKILL: the rank says no goodbye, and its peers notice at once. Its own tickets settle with
// kPeerLost, so that the thread that plays it can leave.
void kill_rank(Transport& transport);

// As SIGSTOP: the rank takes and gives nothing any more; its peers notice by silence alone. Once
// they have, its own tickets settle as above.
void stop_rank(Transport& transport);

}  // namespace gradwire
