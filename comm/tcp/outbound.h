// This rank's messages to one peer, the most urgent first, then in the order they were posted, on
// one connection.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "comm/rendezvous/socket.h"
#include "comm/tcp/op.h"
#include "comm/tcp/turns.h"

namespace gradwire::tcp {

class Outbound {
 public:
  // What is pushed before waits for that.
  void open(std::shared_ptr<rendezvous::Fd> fd) { fd_ = std::move(fd); }
  bool is_open() const { return fd_ != nullptr; }

  void push(Op& op);
  // The announcement of op.id in its place: the op is not done when that is written. Its data, when
  // the peer has asked for it.
  void announce(Op& op);
  void push_announced(Op& op);
  bool empty() const { return queue_.empty(); }
  // There is something to write, and the socket may take it.
  bool runnable() const { return !queue_.empty() && !blocked_ && !held_ && is_open(); }
  // There is, but what comes next was told to wait.
  bool held() const { return held_ && !queue_.empty() && is_open(); }
  void unblock() { blocked_ = false; }
  // There is something to write, once the socket takes it.
  bool blocked() const { return !queue_.empty() && blocked_ && is_open(); }

  // Writes what the socket takes, some `most` bytes at most; appends the messages that are written
  // to `done`. kClosed: the connection is broken.
  // hold: nothing of large messages (Turns) that have not been begun.
  rendezvous::Moved write(std::size_t most, std::vector<Op*>& done, bool hold = false);
  // Of the batch of the first large message that has not been begun; 0: there is none.
  std::uint64_t next_large() const;
  // Of the last one that has been.
  std::uint64_t last_large() const { return last_large_; }
  // Lets go of the message's memory: it is not sent, or, if it has been begun, from a copy. True if
  // it was queued, and nothing of it will come.
  bool withdraw(Op& op);
  // Messages that are pushed from now on have this epoch and source rank in their tags.
  void rebuild(std::uint64_t prefix) { prefix_ = prefix; }
  // Nothing more comes after what is queued.
  void shut();
  // Bytes that were written, or the end, and have not reached the peer's kernel.
  std::size_t undelivered() const;
  void close();

 private:
  struct Item {
    Header header;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    Op* op = nullptr;  // null: withdrawn
    bool announces = false;
    Queue queue = Queue::kBulk;
    std::uint64_t serial = 0;     // of its batch
    std::vector<std::byte> copy;  // what is left of a withdrawn one
  };
  Item& push(Op& op, Header header);
  bool is_large(const Item& item) const { return item.bytes > Turns::kLarge; }
  bool is_begun(const Item& item) const { return written_ > 0 && &item == &queue_.front(); }
  std::size_t gather(std::size_t most, bool hold, iovec* pieces, int& count) const;
  void advance(std::size_t bytes, std::vector<Op*>& done);

  std::shared_ptr<rendezvous::Fd> fd_;
  std::uint64_t prefix_ = 0;
  std::deque<Item> queue_;
  std::size_t written_ = 0;  // of the first item, header included
  bool blocked_ = false;
  bool held_ = false;
  std::uint64_t last_large_ = 0;
};

}  // namespace gradwire::tcp
