// In which order the messages of one sender, receiver and tag are posted.
//
// Such messages have no whole number on the wire, and a long one is posted part by part: two at a
// time would mix their parts. So each waits until all parts of the one before have been posted.
#pragma once

#include <cstdint>
#include <memory>

namespace gradwire {

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

}  // namespace gradwire
