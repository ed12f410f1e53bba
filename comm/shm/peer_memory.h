// Reading the memory of another process of the same host and user.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire::shm {

// Where a process keeps a number that tells it from all others.
struct ProcessIdentity {
  std::uint64_t nonce = 0;
  std::uint64_t nonce_address = 0;
  std::int64_t pid = 0;
};

// A number of this process, drawn anew, where others may look for it as long as this lives.
class OwnNonce {
 public:
  OwnNonce();
  ProcessIdentity process() const;

 private:
  std::uint64_t nonce_ = 0;
};

// Fills `into` from `address` there. An error is for good: kPeerLost where the process has ended,
// kInternal where it may not be read.
Status read_process(pid_t pid, std::uint64_t address, ByteSpan into);

// Whether its memory can be read here, found by reading its nonce.
bool can_read(const ProcessIdentity& process);

}  // namespace gradwire::shm
