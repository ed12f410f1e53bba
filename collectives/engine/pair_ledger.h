// Which message of a pair of ranks a send or recv is: counted for each peer and tag.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace gradwire {

// In which order the messages of one sender, receiver and tag are posted.
//
// Such messages have no whole number on the wire, and a long one is posted part by part: two at a
// time would mix their parts. So each waits until all parts of the one before have been posted.
//
// Of one peer, tag and direction, on one rank. Used by the thread that drives.
struct PostingOrder {
  std::uint64_t next = 0;  // the number of the message whose turn it is
};

// A message's place in it.
struct PostingTurn {
  std::shared_ptr<PostingOrder> order = {};  // null: it need not wait
  std::uint64_t number = 0;

  bool here() const { return order == nullptr || order->next == number; }
  // To the next message; once.
  void pass_on() {
    if (order != nullptr) order->next = number + 1;
    order = nullptr;
  }
};

// One communicator's. Peers are group ranks. Any thread.
class PairLedger {
 public:
  // A message to or from a peer.
  struct Message {
    std::uint64_t number = 0;
    PostingTurn turn = {};  // waits for nothing without a tag
  };
  // The next message from the peer, or to it; used up.
  Message take(bool receives, int peer, int tag) {
    const std::lock_guard lock(mutex_);
    Pair& pair = pairs_[{peer, tag}];
    return receives ? take(pair.taken, pair.receiving, tag) : take(pair.sent, pair.sending, tag);
  }
  // The number of the next message from the peer.
  std::uint64_t next_recv(int peer, int tag) const {
    const std::lock_guard lock(mutex_);
    const auto pair = pairs_.find({peer, tag});
    return pair == pairs_.end() ? 0 : pair->second.taken;
  }
  // It, if that is still the one.
  std::optional<Message> claim(int peer, int tag, std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    Pair& pair = pairs_[{peer, tag}];
    if (pair.taken != number) return std::nullopt;
    return take(pair.taken, pair.receiving, tag);
  }

 private:
  struct Pair {
    std::uint64_t sent = 0;
    std::uint64_t taken = 0;
    std::shared_ptr<PostingOrder> sending = {};  // both of messages with a tag alone
    std::shared_ptr<PostingOrder> receiving = {};
  };
  // Messages without a tag are told apart by their numbers.
  static Message take(std::uint64_t& next, std::shared_ptr<PostingOrder>& order, int tag) {
    const std::uint64_t number = next++;
    if (tag == 0) return {number};
    if (order == nullptr) order = std::make_shared<PostingOrder>();
    return {number, {order, number}};
  }

  mutable std::mutex mutex_;
  std::map<std::pair<int, int>, Pair> pairs_;  // by peer and tag
};

// The operation part of the tag of such a message: 0 and 19 bits of its number, or, with a tag of
// the caller's, 1, 15 bits of that and 4 of the number: equal ones meet in order, and PostingOrder
// keeps the parts of one message together.
constexpr std::uint64_t pair_operation(int tag, std::uint64_t number) {
  if (tag == 0) return number & 0x7ffff;
  return 1u << 19 | static_cast<std::uint64_t>(tag) << 4 | (number & 0xf);
}

}  // namespace gradwire
