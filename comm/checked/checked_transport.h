// A transport whose messages carry checksums, around one whose do not.
//
//   message := data  trailer                two messages of the inner transport with one tag
//   trailer := bytes:u64 hash:u64           little-endian; hash is XXH3 with 64 bits of the data,
//                                           seeded with tag, sender and receiver
//
// Finds what a network, its offload engines or memory on the way have changed, and a message that
// met the receive of another. It proves nothing about who sent it: XXH3 is no cryptographic hash.
#pragma once

#include <memory>

#include "gradwire/transport.h"

namespace gradwire {

// Every rank of the job has to do this, or none. A message that does not fit its checksum settles
// its ticket with kCorruptPayload, naming sender, receiver and message; all else as in `inner`. The
// laws of Transport hold. Host memory only. stats() counts the trailers: 16 bytes and one message
// more for each message.
std::unique_ptr<Transport> with_checksums(std::unique_ptr<Transport> inner);

}  // namespace gradwire
