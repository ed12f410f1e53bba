// What a transport does that has no notes: it cannot go on after a loss.
#include "gradwire/transport.h"

namespace gradwire {

void Transport::tell(int, ConstByteSpan) {}

std::vector<Note> Transport::take_notes() { return {}; }

std::vector<LostPeer> Transport::all_lost() const {
  const auto first = lost();
  return first && first->gone ? std::vector{*first} : std::vector<LostPeer>{};
}

bool Transport::sever() { return false; }

Status Transport::rebuild(std::span<const int>, std::uint32_t, Deadline) {
  return {Code::kUnsupported, "this transport cannot be rebuilt after a loss"};
}

}  // namespace gradwire
