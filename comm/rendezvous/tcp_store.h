// The TCP store: rank 0 serves it, the others ask; and where a store is.
#pragma once

#include <memory>
#include <string>

#include "comm/rendezvous/channel.h"
#include "comm/rendezvous/socket.h"
#include "gradwire/rendezvous.h"

namespace gradwire::rendezvous {

class TcpStore : public KeyValueStore {
 public:
  // Rank 0's end, as this rank calls its host.
  virtual HostPort where() const = 0;
};

// As make_tcp_store(), where rank 0 takes the first port that is free of `ports` from options.port
// on, and the others look through them for the one where this job answers.
Result<std::shared_ptr<KeyValueStore>> make_tcp_store_among(const TcpStoreOptions& options,
                                                            int ports);

// "host:port" of rank 0's store, as this rank calls its host; "" for a store of another kind.
std::string place_of(const KeyValueStore* store);

// The asking half: one connection to rank 0, shared by the threads of a process. Connects and
// shakes hands, trying again until `deadline` while nobody answers; where there are several `ports`
// from `where` on, while none of them answers as this job. The store's end says goodbye, and waits
// for nothing longer than a second.
Result<std::shared_ptr<KeyValueStore>> join_tcp_store(const HostPort& where, int ports,
                                                      const TcpStoreOptions& options,
                                                      Deadline deadline);

// How a client proves itself to the TCP store, and the store to the client: the outcome of one try
// over a fresh connection. Codes of a failure: kPeerLost and kTimedOut may be tried again (nobody
// there yet, or closing); anything else is final and says what was wrong.
Result<Channel> shake_hands(int fd, const TcpStoreOptions& options, Deadline deadline);

}  // namespace gradwire::rendezvous
