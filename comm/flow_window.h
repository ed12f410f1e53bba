// How far a rank's messages to another may run ahead of what that one has taken.
//
// Messages go at once while those that no receive has been known to meet stay within a window. One
// beyond it is announced: a few bytes with its tag and length go in its place, in the order of its
// tag, and the data follows when the receiver asks for it, which it does once a receive is posted.
// So what a receiver has to keep is bounded, in whichever order it receives. The receiver says now
// and then how much it has taken; where that gets lost, more is announced, and nothing else
// happens.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace gradwire::comm {

// Both directions between this rank and one other.
class FlowWindow {
 public:
  // Of the messages that wait at one rank from all of its peers together (up to 32 of them: a peer
  // has kLeastOfOne in any case), and from one of them.
  static constexpr std::uint64_t kMostOfAll = std::uint64_t{32} << 20;
  static constexpr std::uint64_t kMostOfOne = std::uint64_t{24} << 20;
  static constexpr std::uint64_t kLeastOfOne = std::uint64_t{1} << 20;
  // What keeping a message costs beside its bytes: UCX takes a buffer of 8 KiB for a small one.
  static constexpr std::uint64_t kPerMessage = std::uint64_t{4} << 10;

  // In a job of so many ranks. `epoch`: of the messages, other after a rebuild.
  FlowWindow(int ranks, std::uint8_t epoch)
      : most_(std::clamp(kMostOfAll / static_cast<std::uint64_t>(std::max(1, ranks - 1)),
                         kLeastOfOne, kMostOfOne)),
        epoch_(epoch) {}

  // Whether a message of so many bytes may go now; then it counts.
  bool admit(std::size_t bytes) {
    const std::uint64_t sent = sent_ + charge(bytes);
    if (sent - confirmed_ > most_) return false;
    sent_ = sent;
    return true;
  }
  // A message that was admitted has been withdrawn, and nothing of it was sent.
  void give_back(std::size_t bytes) { sent_ -= std::min(sent_ - confirmed_, charge(bytes)); }
  // The peer's credit() has come.
  void confirm(std::uint64_t credit) {
    const std::uint64_t taken = credit & kCount;
    if (credit >> kEpochShift != epoch_ || taken > sent_) return;
    confirmed_ = std::max(confirmed_, taken);
  }

  // What a message counts.
  static constexpr std::uint64_t charge(std::size_t bytes) { return bytes + kPerMessage; }
  // Receives have met messages that were not announced, and that count so much.
  void took(std::uint64_t charges) { taken_ += charges; }
  // What to tell the peer now; nullopt while it is not worth a message.
  std::optional<std::uint64_t> credit() {
    if (taken_ - told_ < most_ / 8) return std::nullopt;
    told_ = taken_;
    return std::uint64_t{epoch_} << kEpochShift | (taken_ & kCount);
  }

  // Of messages of an earlier epoch none is under way any more.
  void restart(std::uint8_t epoch) {
    epoch_ = epoch;
    sent_ = confirmed_ = taken_ = told_ = 0;
  }

 private:
  static constexpr int kEpochShift = 56;
  static constexpr std::uint64_t kCount = (std::uint64_t{1} << kEpochShift) - 1;

  std::uint64_t most_;
  std::uint8_t epoch_;
  std::uint64_t sent_ = 0;
  std::uint64_t confirmed_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t told_ = 0;
};

// The tag (Tag's bits) of the data of an announced message: the transport's own communicator, and
// the message's number among its sender's.
inline constexpr std::uint64_t kAnnouncedTag = std::uint64_t{0xfff} << 28;
constexpr std::uint64_t announced_tag(std::uint64_t id) {
  return kAnnouncedTag | (id & ((std::uint64_t{1} << 28) - 1));
}
constexpr bool is_announced_tag(std::uint64_t tag) {
  return (tag & kAnnouncedTag) == kAnnouncedTag;
}

}  // namespace gradwire::comm
