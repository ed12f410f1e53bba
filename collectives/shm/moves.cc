#include "collectives/shm/moves.h"

#include <unistd.h>

#include <span>

#include "comm/shm/peer_memory.h"

namespace gradwire {

void ShmPlace::copy_in_of(int q, std::size_t offset, std::byte* to, std::size_t bytes,
                          Stores stores) const {
  if (bytes == 0) return;
  if (shares_in(q)) return copy_with(stores, to, in_of(q) + offset, bytes);
  const std::uint64_t from = channel.notice(q, n).address + offset;
  const auto process = static_cast<pid_t>(channel.process_of(q));
  if (process == getpid()) {  // this rank, or one that is a thread beside it
    const auto* here = reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(from));
    return copy_with(stores, to, here, bytes);
  }
  const Status outcome = shm::read_process(process, from, ByteSpan(to, bytes));
  if (!outcome.ok() && unread != nullptr) *unread = q;
}

}  // namespace gradwire
