// Which message of a pair of ranks a send or recv is: counted for each peer and tag, and what peers
// have told about their own counts, so that a recv may ask who has sent something.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/engine/posting_order.h"

namespace gradwire {

// One communicator's. Peers are group ranks but where it says job rank. Any thread.
class PairLedger {
 public:
  explicit PairLedger(std::shared_ptr<const std::vector<int>> group) : group_(std::move(group)) {}

  // A message to or from a peer.
  struct Message {
    std::uint64_t number = 0;
    PostingTurn turn = {};  // waits for nothing without a tag
    bool wanted = false;    // of a send: the peer has asked to hear of it
  };
  // The next message to (from) the peer; used up.
  Message take_send(int peer, int tag);
  Message take_recv(int peer, int tag);

  // A peer that searches asks how many messages it was sent: that many, and it will be told of
  // every later one. nullopt: no rank of this group.
  std::optional<std::uint64_t> want(int job_rank, int tag);
  // How many messages a peer was sent with a tag.
  struct Count {
    int job_rank = 0;
    int tag = 0;
    std::uint64_t sent = 0;
  };
  // Of those that peers have not been told of: for a last word.
  std::vector<Count> untold() const;
  // The answer, from a peer.
  void hear(int job_rank, int tag, std::uint64_t count);
  // Whether a message of that peer is known of that no recv has taken.
  bool waits(int peer, int tag) const;
  // Takes it.
  std::optional<Message> claim(int peer, int tag);

 private:
  struct Pair {
    std::uint64_t sent = 0;
    std::uint64_t told = 0;  // of these
    std::uint64_t taken = 0;
    std::uint64_t heard = 0;
    bool wanted = false;
    std::shared_ptr<PostingOrder> sending = std::make_shared<PostingOrder>();
    std::shared_ptr<PostingOrder> receiving = std::make_shared<PostingOrder>();
  };
  int group_rank(int job_rank) const;
  Pair& of(int peer, int tag) { return pairs_[{peer, tag}]; }

  std::shared_ptr<const std::vector<int>> group_;
  mutable std::mutex mutex_;
  std::map<std::pair<int, int>, Pair> pairs_;  // by peer and tag
};

}  // namespace gradwire
