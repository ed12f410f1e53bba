// Messages of one boundary between stages in one direction: each has memory from its making, or
// from the post of its receive, until nobody needs it.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/text.h"
#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "trainer/memory/memory_arena.h"

namespace gradwire {

// Memory is taken when more messages than ever before are there at a time, and is kept.
class MessagePool {
 public:
  // Every message has `elems` values.
  MessagePool(MemoryArena arena, std::int64_t elems) : arena_(std::move(arena)), elems_(elems) {}

  // Memory for the message of a micro-batch that has none.
  Result<std::span<float>> take(int micro) {
    for (Slot& slot : slots_) {
      if (slot.micro >= 0) continue;
      slot.micro = micro;
      return values_of(slot);
    }
    GW_ASSIGN(Buffer memory, arena_.allocate(MemoryClass::kCommunication,
                                             static_cast<std::size_t>(elems_) * sizeof(float)));
    slots_.push_back({std::move(memory), micro});
    return values_of(slots_.back());
  }
  // kInternal: the micro-batch has no message here.
  Result<std::span<float>> find(int micro) {
    for (Slot& slot : slots_) {
      if (slot.micro == micro) return values_of(slot);
    }
    return Status(Code::kInternal, format("no message of micro-batch %d is here", micro));
  }
  void give_back(int micro) {
    for (Slot& slot : slots_) {
      if (slot.micro == micro) slot.micro = -1;
    }
  }
  void give_all_back() {
    for (Slot& slot : slots_) slot.micro = -1;
  }

 private:
  struct Slot {
    Buffer memory;
    int micro = -1;  // whose message; -1: free
  };
  static std::span<float> values_of(const Slot& slot) {
    const ByteSpan bytes = slot.memory.bytes();
    return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
  }

  MemoryArena arena_;
  std::int64_t elems_;
  std::vector<Slot> slots_;
};

}  // namespace gradwire
