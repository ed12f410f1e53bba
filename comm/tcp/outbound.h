// This rank's messages to one peer, in the order they were posted, on one connection.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "comm/rendezvous/socket.h"
#include "comm/tcp/op.h"

namespace gradwire::tcp {

class Outbound {
 public:
  // `prefix`: the epoch and source rank of every tag.
  void open(rendezvous::Fd fd, std::uint64_t prefix);
  bool is_open() const { return fd_.valid(); }
  int fd() const { return fd_.get(); }

  void push(Op& op);
  bool empty() const { return queue_.empty(); }
  // There is something to write, and the socket may take it.
  bool runnable() const { return !queue_.empty() && !blocked_ && fd_.valid(); }
  void unblock() { blocked_ = false; }
  // There is something to write, once the socket takes it.
  bool blocked() const { return !queue_.empty() && blocked_ && fd_.valid(); }

  // Writes what the socket takes, some `most` bytes at most; appends the messages that are written
  // to `done`. kClosed: the connection is broken.
  rendezvous::Moved write(std::size_t most, std::vector<Op*>& done);
  // Lets go of the message's memory: it is not sent, or, if it has been begun, from a copy.
  void withdraw(Op& op);
  // Messages that are pushed from now on are of another generation.
  void rebuild(std::uint64_t prefix) { prefix_ = prefix; }
  // Nothing more comes after what is queued.
  void shut();
  // Something that was written, or the end, has not reached the peer's kernel.
  bool undelivered() const;
  void close();

 private:
  struct Item {
    Header header;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    Op* op = nullptr;             // null: withdrawn
    std::vector<std::byte> copy;  // what is left of a withdrawn one
  };
  std::size_t gather(std::size_t most, iovec* pieces, int& count) const;
  void advance(std::size_t bytes, std::vector<Op*>& done);

  rendezvous::Fd fd_;
  std::uint64_t prefix_ = 0;
  std::deque<Item> queue_;
  std::size_t written_ = 0;  // of the first item, header included
  bool blocked_ = false;
};

}  // namespace gradwire::tcp
