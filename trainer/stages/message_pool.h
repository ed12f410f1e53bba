// Messages of one boundary between stages in one direction: each has memory from its making, or
// from the post of its receive, until nobody needs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/text.h"
#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "trainer/memory/memory_arena.h"

namespace gradwire {

// All memory is taken at birth.
class MessagePool {
 public:
  // Room for `count` messages of `elems` values at a time.
  static Result<MessagePool> create(const MemoryArena& arena, std::int64_t elems, int count) {
    MessagePool pool;
    for (int slot = 0; slot < count; ++slot) {
      GW_ASSIGN(Buffer memory, arena.allocate(MemoryClass::kMessages,
                                              static_cast<std::size_t>(elems) * sizeof(float)));
      pool.slots_.push_back({std::move(memory)});
    }
    return pool;
  }

  // Memory for the message of a micro-batch that has none. kInternal: there is no more.
  Result<std::span<float>> take(int micro) {
    for (Slot& slot : slots_) {
      if (slot.micro >= 0) continue;
      slot.micro = micro;
      return values_of(slot);
    }
    return Status(Code::kInternal,
                  format("a message of micro-batch %d beside %zu others (expected fewer)", micro,
                         slots_.size()));
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

  std::vector<Slot> slots_;
};

}  // namespace gradwire
