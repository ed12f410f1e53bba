#include "comm/tcp/turns.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace gradwire::tcp {
namespace {

// The next message may begin when no more than this is left of the last: what a link carries while
// this rank learns about it.
constexpr std::size_t kNearlyAll = std::size_t{32} << 10;
// A rank that took nothing for so long may be waiting for what would wait for it here.
constexpr std::chrono::milliseconds kStalled{5};

}  // namespace

bool Turns::busy(Receiver& receiver, Deadline now) const {
  const std::size_t left = left_(receiver.rank);
  if (left != receiver.left) {
    receiver.left = left;
    receiver.since = now;
  }
  return left > kNearlyAll && now - receiver.since < kStalled;
}

bool Turns::waits(const Message& message, Deadline now) {
  return std::ranges::any_of(receivers_, [&](Receiver& receiver) {
    return receiver.rank != message.rank && receiver.serial < message.serial && busy(receiver, now);
  });
}

void Turns::begun(const Message& message, Deadline now) {
  std::erase_if(receivers_, [&](const Receiver& other) { return left_(other.rank) == 0; });
  auto found = std::ranges::find(receivers_, message.rank, &Receiver::rank);
  if (found == receivers_.end()) found = receivers_.insert(found, Receiver{.rank = message.rank});
  if (found->serial == message.serial) return;
  *found = {.rank = message.rank, .serial = message.serial, .left = SIZE_MAX, .since = now};
}

}  // namespace gradwire::tcp
