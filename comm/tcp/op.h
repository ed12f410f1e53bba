// One message of one batch on its way, and the batch.
//
// On a connection a message is a frame:
//
//   frame        := tag:u64 bytes:u64 payload{bytes}   little-endian
//   announcement := tag:u64 2^63 + bytes:u64 id:u64    of a message that follows when it is wanted
//                                                      (comm/flow_window.h), as a frame with the
//                                                      tag announced_tag(id)
//   tag          := epoch:8 source rank:16 Tag's bits:40   from the top
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gradwire/transport.h"

namespace gradwire::tcp {

struct Header {
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
};
static_assert(sizeof(Header) == 16);
inline constexpr std::uint64_t kAnnounces = std::uint64_t{1} << 63;  // of Header's bytes
static_assert(std::endian::native == std::endian::little, "it is sent as it lies in memory");

struct Batch;

// Lives as long as its batch is open; connections and queues point to it until they are done with
// its memory.
struct Op {
  Batch* batch = nullptr;
  Transfer::Kind kind = Transfer::Kind::kSend;
  bool open = false;
  int peer = 0;
  std::uint64_t tag = 0;  // Tag's bits
  ByteSpan data;
  std::size_t arrived = 0;
  std::uint64_t id = 0;  // of an announced message, sent or asked for; 0: it is none
  Op* next = nullptr;    // in the list of receives that wait for the same peer
  Op* previous = nullptr;
};

struct Batch {
  std::uint64_t serial = 0;  // of its ticket; 0: free
  std::vector<Op> ops;       // not resized while one is open
  std::size_t open = 0;
  Status status;  // the first error
};

// Receives that wait for one peer, oldest first. Holds no memory of its own.
class WaitingReceives {
 public:
  bool empty() const { return first_ == nullptr; }
  void push(Op& op) {
    op.previous = last_;
    op.next = nullptr;
    (last_ == nullptr ? first_ : last_->next) = &op;
    last_ = &op;
  }
  void remove(Op& op) {
    (op.previous == nullptr ? first_ : op.previous->next) = op.next;
    (op.next == nullptr ? last_ : op.next->previous) = op.previous;
    op.next = op.previous = nullptr;
  }
  bool has(std::uint64_t tag) const {
    for (const Op* op = first_; op != nullptr; op = op->next) {
      if (op->tag == tag) return true;
    }
    return false;
  }
  // The one that waits for the data of the announced message; null if none does.
  Op* asking(std::uint64_t id) const {
    Op* op = first_;
    while (op != nullptr && op->id != id) op = op->next;
    return op;
  }
  // The oldest with this tag, taken out; null if none.
  Op* take(std::uint64_t tag) {
    for (Op* op = first_; op != nullptr; op = op->next) {
      if (op->tag != tag) continue;
      remove(*op);
      return op;
    }
    return nullptr;
  }

 private:
  Op* first_ = nullptr;
  Op* last_ = nullptr;
};

}  // namespace gradwire::tcp
