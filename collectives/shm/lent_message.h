// What the two sides of a longer message between processes know of it, in memory that both have.
//
// The message is cut into parts. The reader copies them out of the writer's process, one after
// another, by a call of the system. A writer that waits meanwhile helps: it copies a part into its
// stage, from where the reader takes it. That is two copies, but both sides work at once, and where
// their processors share a cache each copy is faster than the system's, which has to find the
// other's pages. Where they do not it is slower: so the reader measures both, and says whether it
// wants help.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gradwire {

// Zeroed memory is a valid one.
struct alignas(64) LentMessage {
  static constexpr std::size_t kPart = 64 << 10;
  static constexpr std::uint32_t kSlots = 16;

  std::atomic<std::uint32_t> done;    // 1: the reader has it; nobody looks here any more
  std::atomic<std::uint32_t> wanted;  // parts that the writer may put into its stage; by the reader
  std::atomic<std::uint32_t> next;    // parts that have somebody who copies them; and more
  std::atomic<std::uint32_t> staged;  // parts that the writer has put there
  std::uint64_t stage;                // its offset in the arena
  std::uint8_t slots[kSlots];         // where staged part i is: slots[i % kSlots]

  static std::uint32_t parts(std::uint64_t bytes) {
    return static_cast<std::uint32_t>((bytes + kPart - 1) / kPart);
  }
  // The first of so many parts that are now the caller's to copy, as far as there are so many;
  // parts(bytes) or more when there is none.
  std::uint32_t claim(std::uint64_t bytes, std::uint32_t count) {
    const std::uint32_t seen = next.load(std::memory_order_relaxed);
    return seen < parts(bytes) ? next.fetch_add(count, std::memory_order_relaxed) : seen;
  }
};

// Of one writer, for all its readers. Zeroed memory is a valid one.
struct MessageStage {
  struct alignas(64) Slot {
    std::atomic<std::uint32_t> full;  // the writer sets it, the reader clears it
    std::uint32_t part;               // of its message
  };

  Slot slots[LentMessage::kSlots];
  alignas(4096) std::byte bytes[LentMessage::kSlots][LentMessage::kPart];
};

}  // namespace gradwire
