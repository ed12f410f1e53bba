// TCP stores whose port is not certain beforehand, and where a store is.
#pragma once

#include <memory>
#include <string>

#include "gradwire/rendezvous.h"

namespace gradwire::rendezvous {

// As make_tcp_store(), where rank 0 takes the first port that is free of `ports` from options.port
// on, and the others look through them for the one where this job answers.
Result<std::shared_ptr<KeyValueStore>> make_tcp_store_among(const TcpStoreOptions& options,
                                                            int ports);

// "host:port" of rank 0's store, as this rank calls its host; "" for a store of another kind.
std::string place_of(const KeyValueStore* store);

}  // namespace gradwire::rendezvous
