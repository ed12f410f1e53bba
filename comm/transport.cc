#include "gradwire/transport.h"

#include "base/text.h"

namespace gradwire {

Result<Tag> Tag::make(std::uint32_t communicator, std::uint64_t operation, std::uint32_t channel) {
  if ((communicator >> 12) != 0 || (channel >> 8) != 0) {
    return Status(
        Code::kInvalidArgument,
        format("tag: communicator %u (expected below 4096), channel %u (expected below 256)",
               communicator, channel));
  }
  return Tag((std::uint64_t{communicator} << 28) | ((operation & 0xfffff) << 8) | channel);
}

// What a transport does that knows nothing of what comes, or has no notes: it cannot go on after a
// loss.

void Transport::gather(bool) {}

bool Transport::has_message(int, Tag, std::uint64_t) { return false; }

void Transport::tell(int, ConstByteSpan) {}

std::vector<Note> Transport::take_notes() { return {}; }

std::vector<LostPeer> Transport::all_lost() const {
  const auto first = lost();
  return first && first->gone ? std::vector{*first} : std::vector<LostPeer>{};
}

bool Transport::accept_losses() { return false; }
bool Transport::sever() { return false; }

Status Transport::rebuild(std::span<const int>, std::uint32_t, Deadline) {
  return {Code::kUnsupported, "this transport cannot be rebuilt after a loss"};
}

}  // namespace gradwire
