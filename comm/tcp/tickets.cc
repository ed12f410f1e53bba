#include "comm/tcp/tickets.h"

#include <algorithm>
#include <cstring>

namespace gradwire::tcp {
namespace {

// Per connection and turn: whole messages with their headers, of several slots together, since the
// kernel takes and gives large pieces faster; what the sockets hold bounds it anyway.
constexpr std::size_t kPiece = std::size_t{1} << 20;
// Asking one connection in vain costs about as much as asking for the news of all.
constexpr std::size_t kMostAsked = 3;

}  // namespace

Tickets::Tickets(Peers& peers, comm::Membership& membership)
    : comm::Tickets<Tickets, Op>(membership),
      peers_(peers),
      waited_(peers.size()),
      blocked_(peers.size()),
      turns_([&peers](int peer) { return peers.at(peer).out.undelivered(); }) {}

void Tickets::start(Op& op) {
  if (op.peer == rank_) return start_self(op);
  if (op.kind == Transfer::Kind::kRecv) {
    Inbound& in = peers_.at(op.peer).in;
    in.post(op, done_);
    waited_.add(op.peer);
    if (in.runnable()) peers_.active().add(op.peer);
    return answer(op.peer);
  }
  Outbound& out = peers_.at(op.peer).out;
  const bool first = out.empty();
  if (window(op.peer).admit(op.data.size())) {
    out.push(op);
  } else {
    op.id = next_id_++;
    announced_.emplace(op.id, &op);
    out.announce(op);
  }
  if (!out.is_open()) peers_.connect(op.peer, true);
  if (gathering_) {
    peers_.active().add(op.peer);
  } else if (first) {
    (void)write(op.peer, std::chrono::steady_clock::now());
  }
}

void Tickets::gather(bool more) {
  gathering_ = more;
  if (more) return;
  const Deadline now = std::chrono::steady_clock::now();
  for (const int rank : peers_.active().ranks()) {
    if (peers_.at(rank).out.runnable()) (void)write(rank, now);
  }
  settle_done();
}

void Tickets::linked(int rank) {
  peers_.active().add(rank);
  waited_.add(rank);
}

// What the rank is to hear of its messages that have met receives.
void Tickets::answer(int rank) {
  Inbound& in = peers_.at(rank).in;
  for (const Inbound::Answer& answer : in.take_answers()) {
    tell(rank, answer.wanted ? comm::Control::Kind::kWant : comm::Control::Kind::kTaken, answer.id);
  }
  window(rank).took(in.take_met());
  if (const auto credit = window(rank).credit()) tell(rank, comm::Control::Kind::kCredit, *credit);
}

void Tickets::tell(int rank, comm::Control::Kind kind, std::uint64_t id) {
  if (membership_.live(rank)) peers_.send(rank, {.kind = kind, .from = rank_, .id = id});
}

void Tickets::on_message(const comm::Control& message) {
  using Kind = comm::Control::Kind;
  if (message.kind == Kind::kCredit) {
    window(message.from).confirm(message.id);
  }
  if (message.kind == Kind::kWithdraw) {
    Op* const op = peers_.at(message.from).in.asking(message.id);
    if (op == nullptr) return;
    return fail(*op->batch, comm::withdrawn_by(message.from));
  }
  if (message.kind != Kind::kWant && message.kind != Kind::kTaken) return;
  const auto found = announced_.find(message.id);
  if (found == announced_.end() || found->second->peer != message.from) {
    // It was cancelled meanwhile.
    if (message.kind == Kind::kWant) tell(message.from, Kind::kWithdraw, message.id);
    return;
  }
  Op& op = *found->second;
  announced_.erase(found);
  if (message.kind == Kind::kTaken) {
    (void)peers_.at(op.peer).out.withdraw(op);  // of an announcement that has not gone yet
    done_.push_back(&op);
  } else {
    peers_.at(op.peer).out.push_announced(op);
    (void)write(op.peer, std::chrono::steady_clock::now());
  }
  settle_done();
}

void Tickets::carry(Op& from, Op& to) {
  if (to.arrived > 0) std::memcpy(to.data.data(), from.data.data(), to.arrived);
}

void Tickets::close(Op& op) {
  op.open = false;
  table_.close(*op.batch);
}

void Tickets::settle_done() {
  for (Op* op : done_) {
    ++(op->kind == Transfer::Kind::kSend ? stats_.messages_sent : stats_.messages_received);
    close(*op);
  }
  done_.clear();
}

bool Tickets::read(int rank, Deadline now) {
  using Kind = Inbound::Outcome::Kind;
  Inbound& in = peers_.at(rank).in;
  const std::size_t before = done_.size();
  const Inbound::Outcome outcome = in.read(kPiece, done_, now);
  answer(rank);
  stats_.bytes_received += outcome.bytes;
  if (outcome.bytes > 0) membership_.heard(rank);
  if (outcome.kind == Kind::kCorrupt) {
    membership_.condemn(rank, outcome.reason);
  } else if (outcome.kind != Kind::kOpen) {
    in.close();
    membership_.data_over(rank, outcome.kind == Kind::kOver ? "connection closed" : outcome.reason,
                          now);
  }
  return outcome.bytes > 0 || done_.size() > before;
}

bool Tickets::write(int rank, Deadline now) {
  Outbound& out = peers_.at(rank).out;
  const std::uint64_t large = peers_.at(rank).over_link ? out.next_large() : 0;
  const bool hold = large != 0 && turns_.waits({rank, large}, now);
  const rendezvous::Moved moved = out.write(kPiece, done_, hold);
  stats_.bytes_sent += moved.bytes;
  if (large != 0 && moved.bytes > 0 && out.last_large() >= large) {
    turns_.begun({rank, out.last_large()}, now);
  }
  if (moved.kind == rendezvous::Moved::Kind::kClosed) {
    out.close();
    membership_.suspect(rank, std::strerror(moved.error), now);
  }
  if (out.runnable() || out.held()) peers_.active().add(rank);
  if (out.blocked()) blocked_.add(rank);
  return moved.bytes > 0;
}

bool Tickets::move(Deadline now) {
  moved_ = false;
  peers_.active().visit([&](int rank) {
    Peer& peer = peers_.at(rank);
    peer.came = peer.in.runnable() && read(rank, now);
    moved_ = moved_ || peer.came;
    if (peer.out.runnable() || peer.out.held()) moved_ = write(rank, now) || moved_;
    if (peer.bulk_ended && peer.out.is_open()) {
      peer.bulk_ended = false;
      membership_.suspect(rank, "connection closed", now);
    }
    return peer.in.runnable() || peer.out.runnable() || peer.out.held();
  });
  settle_done();
  return moved_;
}

bool Tickets::ask() {
  waited_.visit([&](int rank) { return peers_.at(rank).in.wanted(); }, kMostAsked + 1);
  const std::size_t wanted = waited_.ranks().size();
  if (wanted == 0 || wanted > kMostAsked) return false;
  for (const int rank : waited_.ranks()) {
    peers_.at(rank).in.ask();
    peers_.active().add(rank);
  }
  // What lies unread is before every message that is more urgent: no more is written meanwhile.
  blocked_.visit([&](int rank) { return peers_.at(rank).out.blocked(); });
  return std::ranges::all_of(blocked_.ranks(), [&](int rank) {
    return peers_.at(rank).came && peers_.at(rank).in.wanted();  // else `came` may be of long ago
  });
}

bool Tickets::runnable() const {
  return moved_ || std::ranges::any_of(peers_.active().ranks(), [&](int rank) {
           return peers_.at(rank).in.runnable() || peers_.at(rank).out.runnable();
         });
}

bool Tickets::holding() const {
  return std::ranges::any_of(peers_.active().ranks(),
                             [&](int rank) { return peers_.at(rank).out.held(); });
}

void Tickets::on_losses() {
  for (int rank = 0; rank < peers_.size(); ++rank) {
    if (rank != rank_ && membership_.state(rank) == State::kClosed) peers_.at(rank).out.close();
  }
  comm::Tickets<Tickets, Op>::on_losses();
}

// At once: every connection lets go of its memory.
void Tickets::withdraw(Op& op) {
  if (op.peer == rank_) {
    self_.remove(op);
  } else if (op.kind == Transfer::Kind::kRecv) {
    peers_.at(op.peer).in.withdraw(op);
  } else {
    withdraw_send(op);
  }
  close(op);
}

void Tickets::withdraw_send(Op& op) {
  const bool asked = op.id != 0 && announced_.erase(op.id) == 0;
  if (!peers_.at(op.peer).out.withdraw(op)) return;
  if (op.id == 0) window(op.peer).give_back(op.data.size());
  if (asked) tell(op.peer, comm::Control::Kind::kWithdraw, op.id);
}

template <typename Is>
bool Tickets::any_live(const Is& is) const {
  for (int rank = 0; rank < peers_.size(); ++rank) {
    if (rank != rank_ && membership_.live(rank) && is(peers_.at(rank).out)) return true;
  }
  return false;
}

bool Tickets::unwritten() const {
  return any_live([](const Outbound& out) { return out.is_open() && !out.empty(); });
}

bool Tickets::undelivered() const {
  return any_live([](const Outbound& out) { return out.undelivered() > 0; });
}

}  // namespace gradwire::tcp
