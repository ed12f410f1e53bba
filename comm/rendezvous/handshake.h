// How a client proves itself to the TCP store, and the store to the client.
#pragma once

#include "comm/rendezvous/channel.h"
#include "comm/rendezvous/socket.h"
#include "gradwire/rendezvous.h"

namespace gradwire::rendezvous {

// The outcome of one try over a fresh connection. Codes of a failure: kPeerLost and kTimedOut may
// be tried again (nobody there yet, or closing); anything else is final and says what was wrong.
Result<Channel> shake_hands(int fd, const TcpStoreOptions& options, Deadline deadline);

}  // namespace gradwire::rendezvous
