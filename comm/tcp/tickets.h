// The batches of this rank, from post to poll.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "comm/flow_window.h"
#include "comm/membership.h"
#include "comm/self_queue.h"
#include "comm/tcp/op.h"
#include "comm/tcp/peers.h"
#include "comm/tcp/turns.h"
#include "gradwire/transport.h"

namespace gradwire::tcp {

class Tickets {
 public:
  // `epoch`: of messages, as in their tags.
  Tickets(Peers& peers, comm::Membership& membership, int rank, std::uint8_t epoch);
  Tickets(const Tickets&) = delete;
  Tickets& operator=(const Tickets&) = delete;

  Ticket post(std::span<const Transfer> transfers);
  // Reads and writes what the connections have and take, a bounded amount; true if anything moved.
  bool move(Deadline now);
  // Makes move() ask the connections that receives wait for, without news of them, unless they are
  // many; false if it will not, or if there is something else to be learned from the kernel.
  bool ask();
  // Some connection may be read from or written to without waiting.
  bool runnable() const;
  // Some message waits for its turn.
  bool holding() const;
  // kWant, kWithdraw, kTaken and kCredit; others are none of its business.
  void on_message(const comm::Control& message);
  // Settles what names peers that are not live any more.
  void on_losses();

  std::optional<Status> poll(Ticket ticket);
  std::size_t received(Ticket ticket, std::size_t index) const;
  void cancel(Ticket ticket);
  void cancel_all();
  // Cancels all; with true, posts fail from now on.
  void sever(bool severed);
  // Messages are of another epoch from now on; all tickets have ended.
  void restart(std::uint8_t epoch);
  // A message has been begun and is not written to its end.
  bool unwritten() const;
  // Something that was written has not reached its rank's kernel.
  bool undelivered() const;

  int take_settled() { return std::exchange(settled_, 0); }
  bool any_settled() const { return settled_ > 0; }
  const TransportStats& stats() const { return stats_; }

 private:
  Batch* find(Ticket ticket) const;
  std::optional<Status> unreachable(std::span<const Transfer> transfers);
  std::uint64_t take_slot();
  void start(Op& op);
  void start_self(Op& op);
  void answer(int rank);
  void tell(int rank, comm::Control::Kind kind, std::uint64_t id);
  bool read(int rank, Deadline now);
  bool write(int rank, Deadline now);
  void settle_done();
  void close(Op& op);
  void fail(Batch& batch, const Status& why);
  void withdraw_send(Op& op);
  Status cancelled() const;

  Peers& peers_;
  comm::Membership& membership_;
  int rank_;
  std::vector<std::unique_ptr<Batch>> batches_;  // by slot
  std::vector<std::uint64_t> free_slots_;
  std::uint64_t next_serial_ = 1;
  int settled_ = 0;
  bool severed_ = false;
  std::vector<Op*> done_;  // in a connection's opinion, not yet closed
  comm::SelfQueue<Op> self_;
  std::vector<comm::FlowWindow> windows_;             // by rank
  std::unordered_map<std::uint64_t, Op*> announced_;  // by id; their data has not been asked for
  std::uint64_t next_id_ = 1;
  Turns turns_;
  TransportStats stats_;
};

}  // namespace gradwire::tcp
