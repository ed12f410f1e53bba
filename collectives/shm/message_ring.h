// Messages from one rank of a host to another, through memory that both have. One side writes, the
// other reads; both look at the entry itself, whose first word says that it is there. What a line
// of the cache costs on its way from core to core is most of what a short message costs, so that
// two of the shortest share one.
//
//   entry = head payload, in multiples of kUnit, not across the end
//
// A payload of kMostInline bytes at most may be in the entry. A longer one stays where it is, and
// the entry says where it is, and where both sides write how far they are (Lent).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "gradwire/tensor.h"

namespace gradwire {

// In shared memory; zeroed memory is a valid one. Used through MessageWriter and MessageReader.
struct MessageRing {
  static constexpr std::size_t kBytes = 512 << 10;
  static constexpr std::size_t kMostInline = 32 << 10;
  static constexpr std::size_t kLine = 64;
  static constexpr std::size_t kUnit = 32;

  enum class Kind : std::uint8_t { kInline, kInArena, kInProcess, kSkip };
  struct Head {
    std::atomic<std::uint32_t> there;  // 1 once it is there
    std::int32_t tag;
    std::uint32_t payload;  // bytes
    std::uint8_t dtype;
    Kind kind;
  };
  // The payload of a longer message's entry.
  struct Lent {
    std::uint64_t bytes = 0;  // of the message
    std::uint64_t place = 0;  // an offset in the arena, or where it is in its process
    std::uint64_t words = 0;  // the arena's offset of its LentMessage (lent_message.h)
  };

  alignas(kLine) std::atomic<std::uint64_t> read;  // bytes of entries
  std::atomic<std::uint64_t> taken;                // bytes of entries with payload, by receives
  alignas(kLine) std::atomic<std::uint32_t> short_of_room;  // the writer found none
  alignas(kLine) std::byte entries[kBytes];

  Head& at(std::uint64_t begin) { return *reinterpret_cast<Head*>(entries + begin % kBytes); }
  static std::byte* payload(Head& head) { return reinterpret_cast<std::byte*>(&head + 1); }
  static std::uint64_t to_end(std::uint64_t begin) { return kBytes - begin % kBytes; }
  // Bytes of an entry.
  static std::uint64_t size_with(std::size_t payload) {
    return (sizeof(Head) + payload + kUnit - 1) / kUnit * kUnit;
  }
};
static_assert(sizeof(MessageRing::Head) == 16 && std::atomic<std::uint64_t>::is_always_lock_free);

class MessageWriter {
 public:
  // What an entry says. data: its payload: the message, or of a longer one a MessageRing::Lent.
  struct Entry {
    int tag = 0;
    DType dtype = DType::kU8;
    MessageRing::Kind kind = MessageRing::Kind::kInline;
    ConstByteSpan data = {};
  };

  MessageRing* ring = nullptr;

  // False where there is no room now.
  bool write(const Entry& entry) {
    go_back();
    const std::uint64_t size = MessageRing::size_with(entry.data.size());
    const std::uint64_t to_end = MessageRing::to_end(next_);
    if (!has_room(size > to_end ? to_end + size : size)) return false;
    if (size > to_end) put(to_end, {.kind = MessageRing::Kind::kSkip});
    put(size, entry);
    if (entry.kind == MessageRing::Kind::kInline) inline_bytes_ += size;
    return true;
  }
  // Whether something was read since there was no room.
  bool may_have_room() const { return ring->read.load(std::memory_order_acquire) != read_; }
  // Whether entries of more than so many bytes have payload that no receive has taken.
  bool has_untaken(std::uint64_t bytes) {
    if (inline_bytes_ - taken_ <= bytes) return false;
    taken_ = ring->taken.load(std::memory_order_relaxed);
    return inline_bytes_ - taken_ > bytes;
  }

 private:
  // Now and then, where all has been read: to the beginning, so that few lines are used, and those
  // often.
  void go_back() {
    constexpr std::uint64_t kStretch = MessageRing::kBytes / 8;
    if (next_ / kStretch == stretch_) return;
    read_ = ring->read.load(std::memory_order_acquire);
    const std::uint64_t to_end = MessageRing::to_end(next_);
    if (read_ == next_ && to_end < MessageRing::kBytes && has_room(to_end))
      put(to_end, {.kind = MessageRing::Kind::kSkip});
    stretch_ = next_ / kStretch;
  }
  // With a unit more, for the head of the next entry, which must not look as if it were there.
  bool has_room(std::uint64_t bytes) {
    constexpr std::uint64_t kMost = MessageRing::kBytes - MessageRing::kUnit;
    if (next_ + bytes - read_ <= kMost) return true;
    read_ = ring->read.load(std::memory_order_acquire);
    if (next_ + bytes - read_ <= kMost) return true;
    ring->short_of_room.store(1, std::memory_order_relaxed);
    return false;
  }
  void put(std::uint64_t size, const Entry& entry) {
    ring->at(next_ + size).there.store(0, std::memory_order_relaxed);
    MessageRing::Head& head = ring->at(next_);
    head.tag = entry.tag;
    head.payload = static_cast<std::uint32_t>(entry.data.size());
    head.dtype = static_cast<std::uint8_t>(entry.dtype);
    head.kind = entry.kind;
    if (!entry.data.empty()) {
      std::memcpy(MessageRing::payload(head), entry.data.data(), entry.data.size());
    }
    head.there.store(1, std::memory_order_release);
    next_ += size;
  }

  std::uint64_t next_ = 0;
  std::uint64_t stretch_ = 0;
  std::uint64_t read_ = 0;  // both as last seen: each look takes the line from the reader
  std::uint64_t taken_ = 0;
  std::uint64_t inline_bytes_ = 0;
};

class MessageReader {
 public:
  MessageRing* ring = nullptr;

  // The oldest entry that has not been popped; null where there is none yet.
  MessageRing::Head* peek() {
    while (true) {
      MessageRing::Head& head = ring->at(next_);
      if (head.there.load(std::memory_order_acquire) == 0) return nullptr;
      if (head.kind != MessageRing::Kind::kSkip) return &head;
      next_ += MessageRing::to_end(next_);
      ring->read.store(next_, std::memory_order_release);
    }
  }
  // Requires what peek() has returned, of which nothing is used any more. True where the writer is
  // to be rung: it was seen to be short of room, or much has become free and it may have been.
  bool pop(const MessageRing::Head& head) {
    const std::uint64_t before = std::exchange(next_, next_ + MessageRing::size_with(head.payload));
    ring->read.store(next_, std::memory_order_release);
    constexpr std::uint64_t kMuch = MessageRing::kBytes / 8;
    if (ring->short_of_room.load(std::memory_order_relaxed) == 0) {
      return before / kMuch != next_ / kMuch;
    }
    ring->short_of_room.store(0, std::memory_order_relaxed);
    return true;
  }
  // A receive has the payload of an inline message.
  void take(std::size_t bytes) {
    ring->taken.store(ring->taken.load(std::memory_order_relaxed) + MessageRing::size_with(bytes),
                      std::memory_order_relaxed);
  }

 private:
  std::uint64_t next_ = 0;
};

}  // namespace gradwire
