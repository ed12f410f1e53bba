// The batches of this rank over its connections.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "comm/tcp/op.h"
#include "comm/tcp/peers.h"
#include "comm/tcp/turns.h"
#include "comm/tickets.h"

namespace gradwire::tcp {

class Tickets : public comm::Tickets<Tickets, Op> {
 public:
  Tickets(Peers& peers, comm::Membership& membership);

  // Reads and writes what the connections have and take, a bounded amount; true if anything moved.
  bool move(Deadline now);
  // Makes move() ask the connections that receives wait for, without news of them, unless they are
  // many; false if it will not, or if there is something else to be learned from the kernel.
  bool ask();
  // The last turn moved something, or some connection may be read from or written to at once.
  bool runnable() const;
  // Some message waits for its turn.
  bool holding() const;
  // As Transport has it.
  void gather(bool more);
  // kWant, kWithdraw, kTaken and kCredit; others are none of its business.
  void on_message(const comm::Control& message);
  // There is a connection with `rank` now.
  void linked(int rank);
  void on_losses();
  // A message has been begun and is not written to its end.
  bool unwritten() const;
  // Something that was written has not reached its rank's kernel.
  bool undelivered() const;

 private:
  friend class comm::Tickets<Tickets, Op>;
  void start(Op& op);
  void started() { settle_done(); }
  static bool is_over(const Op& op) { return !op.open; }
  void withdraw(Op& op);
  static void carry(Op& from, Op& to);
  void carried(Op& op) { done_.push_back(&op); }
  void answer(int rank);
  void tell(int rank, comm::Control::Kind kind, std::uint64_t id);
  bool read(int rank, Deadline now);
  bool write(int rank, Deadline now);
  void settle_done();
  void close(Op& op);
  void withdraw_send(Op& op);
  template <typename Is>
  bool any_live(const Is& is) const;

  Peers& peers_;
  std::vector<Op*> done_;                             // in a connection's opinion, not yet closed
  RankList waited_;                                   // ranks that receives may wait for
  RankList blocked_;                                  // ranks whose connections may have no room
  std::unordered_map<std::uint64_t, Op*> announced_;  // by id; their data has not been asked for
  std::uint64_t next_id_ = 1;
  Turns turns_;
  bool gathering_ = false;
  bool moved_ = false;  // anything, in the last turn
};

}  // namespace gradwire::tcp
