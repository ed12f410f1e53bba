#include "comm/shm/peer_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "base/text.h"

namespace gradwire::shm {

OwnNonce::OwnNonce() {
  std::random_device entropy;
  nonce_ = static_cast<std::uint64_t>(entropy()) << 32 | entropy();
}

ProcessIdentity OwnNonce::process() const {
  return {
      .nonce = nonce_, .nonce_address = reinterpret_cast<std::uintptr_t>(&nonce_), .pid = getpid()};
}

Status read_process(pid_t pid, std::uint64_t address, ByteSpan into) {
  while (!into.empty()) {
    const iovec local = {into.data(), into.size()};
    const iovec remote = {reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)),
                          into.size()};
    const ssize_t bytes = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) {
      return Status(bytes < 0 && errno == ESRCH ? Code::kPeerLost : Code::kInternal,
                    format("reading the memory of process %d: %s", static_cast<int>(pid),
                           bytes < 0 ? std::strerror(errno) : "nothing there"));
    }
    into = into.subspan(static_cast<std::size_t>(bytes));
    address += static_cast<std::uint64_t>(bytes);
  }
  return {};
}

bool can_read(const ProcessIdentity& process) {
  std::uint64_t seen = 0;
  const auto pid = static_cast<pid_t>(process.pid);
  const Status outcome =
      read_process(pid, process.nonce_address, std::as_writable_bytes(std::span(&seen, 1)));
  return outcome.ok() && seen == process.nonce;
}

}  // namespace gradwire::shm
