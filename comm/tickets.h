// The batches of a rank, from post to poll: what every transport keeps of them.
//
// Storage is recycled: once as many batches as are open at a time have been posted, none allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/flow_window.h"
#include "comm/membership.h"
#include "gradwire/transport.h"

namespace gradwire::comm {

template <typename Op>
struct Batch {
  std::uint64_t number = 0;  // its ticket's, rising in the order of posting; 0: it was reported
  std::uint64_t slot = 0;    // its place in the table
  std::vector<Op> ops;       // not resized while one is open
  std::size_t open = 0;      // of these, and one more while they are being started
  bool settled = false;      // its outcome is known
  Status status;             // the first error
};

// One message of a batch; transports derive theirs, `Op`. Pointers to it hold until its batch has
// no open message and was reported.
template <typename Op>
struct Message {
  comm::Batch<Op>* batch = nullptr;
  Transfer::Kind kind = Transfer::Kind::kSend;
  int peer = 0;
  std::uint64_t tag = 0;  // Tag's bits, and what a transport adds
  ByteSpan data;
  Device device;
  Queue queue = Queue::kBulk;
  std::size_t arrived = 0;  // bytes
  Op* next = nullptr;       // in the list in which it waits
  Op* previous = nullptr;
};

// Messages that wait, oldest first. Holds no memory of its own.
template <typename Op>
class WaitingOps {
 public:
  bool empty() const { return first_ == nullptr; }
  // Before another one that waits; without one, at the end.
  void push(Op& op, Op* before = nullptr) {
    op.previous = before == nullptr ? last_ : before->previous;
    op.next = before;
    (op.previous == nullptr ? first_ : op.previous->next) = &op;
    (before == nullptr ? last_ : before->previous) = &op;
  }
  void remove(Op& op) {
    (op.previous == nullptr ? first_ : op.previous->next) = op.next;
    (op.next == nullptr ? last_ : op.next->previous) = op.previous;
    op.next = op.previous = nullptr;
  }
  // The oldest of which `is` is true; null if none.
  template <typename Is>
  Op* find(Is is) const {
    Op* op = first_;
    while (op != nullptr && !is(*op)) op = op->next;
    return op;
  }
  bool has(std::uint64_t tag) const { return find(tagged(tag)) != nullptr; }
  // The oldest with this tag, taken out; null if none.
  Op* take(std::uint64_t tag) {
    Op* const op = find(tagged(tag));
    if (op != nullptr) remove(*op);
    return op;
  }
  // Of a list of sends and receives that match as `same` says: the oldest partner, taken out; or
  // null, and `op` waits.
  template <typename Same>
  Op* meet(Op& op, Same same) {
    Op* const other = find([&](const Op& waiting) { return same(waiting, op); });
    if (other == nullptr || other->kind == op.kind) {
      push(op);
      return nullptr;
    }
    remove(*other);
    return other;
  }

 private:
  static auto tagged(std::uint64_t tag) {
    return [tag](const Op& op) { return op.tag == tag; };
  }

  Op* first_ = nullptr;
  Op* last_ = nullptr;
};

// What transports say of batches.
Status unknown_ticket(Ticket ticket);
Status cancelled_by(int rank);
Status withdrawn_by(int rank);
Status message_too_long(int from, std::uint64_t tag, std::size_t bytes, std::size_t room);
// kInvalidArgument for a peer out of range, or CUDA memory where `no_cuda` says why not.
Status check_batch(std::span<const Transfer> batch, int size,
                   std::optional<std::string_view> no_cuda);

TransportStats sum(const TransportStats& some, const TransportStats& more);

// Ends the receive's batch, unless something has: the message of so many bytes does not fit.
template <typename Op>
void refuse_long(Op& receive, std::size_t bytes) {
  if (!receive.batch->status.ok()) return;
  receive.batch->status = message_too_long(receive.peer, receive.tag, bytes, receive.data.size());
}

template <typename Op>
class BatchTable {
 public:
  using Batch = comm::Batch<Op>;

  // It is open, with one for the caller to close() when all are started.
  Batch& add(std::span<const Transfer> transfers) {
    if (free_.empty()) {
      all_.push_back(std::make_unique<Batch>());
      all_.back()->slot = all_.size() - 1;
      free_.push_back(all_.back().get());
    }
    Batch& batch = *free_.back();
    free_.pop_back();
    batch.number = next_++ << kSlotBits | batch.slot;
    batch.settled = false;
    batch.status = {};
    batch.open = transfers.size() + 1;
    batch.ops.assign(transfers.size(), {});
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      Op& op = batch.ops[i];
      op.batch = &batch;
      op.kind = transfers[i].kind;
      op.peer = transfers[i].peer;
      op.tag = transfers[i].tag.bits();
      op.queue = transfers[i].queue;
      op.data = transfers[i].data;
      op.device = transfers[i].device;
    }
    return batch;
  }
  // Null where it was reported.
  Batch* find(Ticket ticket) const {
    const auto number = static_cast<std::uint64_t>(ticket);
    const std::uint64_t slot = number % kSlots;
    if (number == 0 || slot >= all_.size() || all_[slot]->number != number) return nullptr;
    return all_[slot].get();
  }
  // One of its messages is over. True if that settles it.
  bool close(Batch& batch) {
    if (--batch.open > 0) return false;
    if (batch.number != 0) return settle(batch);
    free_.push_back(&batch);
    return false;
  }
  // Its outcome is known, though messages may be open. True if it was not.
  bool settle(Batch& batch) {
    if (batch.settled) return false;
    batch.settled = true;
    ++settled_;
    return true;
  }
  // As Transport says.
  std::optional<Status> poll(Ticket ticket) {
    Batch* const batch = find(ticket);
    if (batch == nullptr) return unknown_ticket(ticket);
    if (!batch->settled) return std::nullopt;
    batch->number = 0;
    if (batch->open == 0) free_.push_back(batch);
    return batch->status;
  }
  std::size_t received(Ticket ticket, std::size_t index) const {
    const Batch* const batch = find(ticket);
    return batch == nullptr || index >= batch->ops.size() ? 0 : batch->ops[index].arrived;
  }
  // All with open messages whose outcome is not known.
  template <typename Act>
  void for_each_open(Act act) {
    for (const auto& batch : all_) {
      if (batch->open > 0 && !batch->settled) act(*batch);
    }
  }
  // Every open batch is over, after `act`: nobody has to do with its messages any more.
  template <typename Act>
  void end_all(Act act) {
    for (const auto& batch : all_) {
      if (batch->open == 0) continue;
      act(*batch);
      batch->open = 1;
      close(*batch);
    }
  }
  int take_settled() { return std::exchange(settled_, 0); }
  bool any_settled() const { return settled_ > 0; }

 private:
  static constexpr int kSlotBits = 24;
  static constexpr std::uint64_t kSlots = std::uint64_t{1} << kSlotBits;

  std::vector<std::unique_ptr<Batch>> all_;  // by slot
  std::vector<Batch*> free_;
  std::uint64_t next_ = 1;
  int settled_ = 0;
};

// The batches of a transport that knows its peers by a Membership. Self, which derives from it, has
//   void start(Op&)      begins a message
//   void started()       all of a batch have been begun
//   bool is_over(const Op&) const
//   void withdraw(Op&)   ends a message as far as that is possible now
//   void carry(Op& from, Op& to)   of a message to this rank itself, which has room for it
//   void carried(Op&)    of each end of that, when both have met
template <typename Self, typename Op>
class Tickets {
 public:
  using Batch = comm::Batch<Op>;
  explicit Tickets(Membership& membership)
      : membership_(membership),
        rank_(membership.members().self()),
        windows_(static_cast<std::size_t>(membership.members().size()),
                 FlowWindow(membership.members().size(), membership.members().epoch())) {}
  Tickets(const Tickets&) = delete;
  Tickets& operator=(const Tickets&) = delete;

  Membership& membership() const { return membership_; }
  Ticket post(std::span<const Transfer> transfers) {
    const std::optional<Status> why = severed_ ? cancelled_by(rank_) : unreachable(transfers);
    Batch& batch = table_.add(why ? std::span<const Transfer>() : transfers);
    const Ticket ticket{batch.number};
    if (why) batch.status = *why;
    // Receives first: what comes may be an answer to what is sent, and is copied once then.
    for (const auto kind : {Transfer::Kind::kRecv, Transfer::Kind::kSend}) {
      for (Op& op : batch.ops) {
        if (op.kind == kind) self().start(op);
      }
    }
    self().started();
    fail_unreachable(batch);
    table_.close(batch);
    return ticket;
  }
  std::optional<Status> poll(Ticket ticket) { return table_.poll(ticket); }
  std::size_t received(Ticket ticket, std::size_t index) const {
    return table_.received(ticket, index);
  }
  void cancel(Ticket ticket) {
    Batch* const batch = table_.find(ticket);
    if (batch != nullptr && batch->open > 0) self().fail(*batch, cancelled_by(rank_));
  }
  void cancel_all() {
    table_.for_each_open([&](Batch& batch) { self().fail(batch, cancelled_by(rank_)); });
  }
  // Cancels all; posts fail until restart().
  void sever() {
    severed_ = true;
    cancel_all();
  }
  // There is another version of the members' table; all tickets have ended.
  void restart() {
    for (FlowWindow& window : windows_) window.restart(membership_.members().epoch());
    severed_ = false;
  }
  // Settles, or begins to, what names peers that are not live any more.
  void on_losses() {
    table_.for_each_open([&](Batch& batch) { fail_unreachable(batch); });
  }
  // Other ranks with which messages are open, in any order and number.
  std::vector<int> awaited() {
    std::vector<int> ranks;
    table_.for_each_open([&](const Batch& batch) {
      for (const Op& op : batch.ops) {
        if (!self().is_over(op)) ranks.push_back(op.peer);
      }
    });
    return ranks;
  }
  int take_settled() { return table_.take_settled(); }
  bool any_settled() const { return table_.any_settled(); }
  const TransportStats& stats() const { return stats_; }

 protected:
  // A batch settles as a whole: all that can be ended is.
  void fail(Batch& batch, const Status& why) {
    if (batch.status.ok()) batch.status = why;
    for (Op& op : batch.ops) {
      if (!self().is_over(op)) self().withdraw(op);
    }
  }
  FlowWindow& window(int rank) { return windows_[static_cast<std::size_t>(rank)]; }
  // Of a message to this rank itself: the second of its ends ends both.
  void start_self(Op& op) {
    Op* const partner =
        self_.meet(op, [](const Op& one, const Op& other) { return one.tag == other.tag; });
    if (partner == nullptr) return;
    const bool sends = op.kind == Transfer::Kind::kSend;
    Op& from = sends ? op : *partner;
    Op& to = sends ? *partner : op;
    if (from.data.size() > to.data.size()) {
      refuse_long(to, from.data.size());
    } else {
      to.arrived = from.data.size();
      self().carry(from, to);
    }
    self().carried(from);
    self().carried(to);
  }

  using State = Membership::State;

  Membership& membership_;
  int rank_;
  BatchTable<Op> table_;
  TransportStats stats_;
  WaitingOps<Op> self_;  // of messages to this rank itself

 private:
  Self& self() { return static_cast<Self&>(*this); }
  Status gone(int peer) {
    if (membership_.state(peer) == State::kClosed) membership_.need(peer);
    return membership_.why(peer);
  }
  std::optional<Status> unreachable(std::span<const Transfer> transfers) {
    for (const Transfer& transfer : transfers) {
      if (transfer.peer == rank_) continue;
      const State state = membership_.state(transfer.peer);
      // What a closed peer sent before it closed can still be received.
      const bool sends = transfer.kind == Transfer::Kind::kSend;
      if (state == State::kLost || (state == State::kClosed && sends)) return gone(transfer.peer);
    }
    return std::nullopt;
  }
  void fail_unreachable(Batch& batch) {
    for (const Op& op : batch.ops) {
      if (self().is_over(op) || op.peer == rank_ || membership_.live(op.peer)) continue;
      return self().fail(batch, gone(op.peer));
    }
  }

  std::vector<FlowWindow> windows_;  // by rank
  bool severed_ = false;
};

// What transports have alike that have such Tickets, once tickets_ is there.
template <typename Tickets>
class TicketTransport : public Transport {
 public:
  int rank() const override { return rendezvous_.rank; }
  int size() const override { return rendezvous_.size; }
  std::string describe() const override { return description_; }
  std::optional<Status> poll(Ticket ticket) override { return tickets_->poll(ticket); }
  std::size_t received(Ticket ticket, std::size_t index) const override {
    return tickets_->received(ticket, index);
  }
  void cancel(Ticket ticket) override { tickets_->cancel(ticket); }
  std::optional<LostPeer> lost() const override { return membership().lost(); }
  void announce(const LostPeer& loss) override {
    membership().announce(loss);
    if (membership().take_changed()) tickets_->on_losses();
  }
  void tell(int peer, ConstByteSpan note) override { membership().tell(peer, note); }
  std::vector<Note> take_notes() override { return membership().take_notes(); }
  std::vector<LostPeer> all_lost() const override { return membership().all_lost(); }
  bool accept_losses() override {
    membership().accept_losses();
    return true;
  }
  bool is_crowded() const override { return membership().members().is_crowded(); }
  bool sever() override {
    tickets_->sever();
    return true;
  }

 protected:
  explicit TicketTransport(const Rendezvous& rendezvous) : rendezvous_(rendezvous) {}
  Membership& membership() const { return tickets_->membership(); }

  Rendezvous rendezvous_;
  std::unique_ptr<Tickets> tickets_;  // refers to what the transport has, but not as it ends
  std::string description_;
};

}  // namespace gradwire::comm
