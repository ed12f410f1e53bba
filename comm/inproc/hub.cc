#include "comm/inproc/hub.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/philox.h"
#include "base/text.h"

namespace gradwire::inproc {

namespace {

// Where an op's tag has its generation.
constexpr int kTagBits = 40;

int source_of(const Op& op) { return op.kind == Transfer::Kind::kSend ? op.owner : op.peer; }
int target_of(const Op& op) { return op.kind == Transfer::Kind::kSend ? op.peer : op.owner; }

bool same_message(const Op& one, const Op& other) {
  return one.tag == other.tag && source_of(one) == source_of(other);
}

}  // namespace

Hub::Hub(int size, double silence_seconds, std::shared_ptr<VirtualClock> clock)
    : ranks_(static_cast<std::size_t>(size)),
      silence_seconds_(silence_seconds),
      clock_(std::move(clock)) {}

comm::WaitingOps<Op>& Hub::waiting_with(const Op& op) {
  const std::uint64_t hash = mix64(op.tag ^ (static_cast<std::uint64_t>(source_of(op)) << 40));
  Waiting& waiting = at(target_of(op)).waiting;
  return waiting[hash % waiting.size()];
}

// Meets the oldest waiting partner, or waits. The receiver is told either way that it has to copy.
void Hub::start(Op& op) {
  Op* const partner = waiting_with(op).meet(op, same_message);
  if (partner == nullptr) {
    Rank& target = at(target_of(op));
    if (op.kind == Transfer::Kind::kSend && std::exchange(target.watches, false)) {
      target.woken = true;
      target.news.notify_one();
    }
    return;
  }
  op.partner = partner;
  partner->partner = &op;
  op.state = partner->state = Op::State::kMatched;
  Op& receive = op.kind == Transfer::Kind::kRecv ? op : *partner;
  if (clock_ != nullptr) time(*receive.partner, receive);
  at(receive.owner).ready.push_back(&receive);
  at(receive.owner).news.notify_one();
}

void Hub::time(Op& send, Op& receive) {
  send.ended = receive.ended =
      clock_->carry(send.owner, receive.owner, send.data.size(), send.posted, receive.posted);
}

// Undoes a match: the partner meets another one that waits, or waits again in the order of posting.
void Hub::unmatch(Op& op) {
  Op& partner = *op.partner;
  Op& receive = op.kind == Transfer::Kind::kRecv ? op : partner;
  std::erase(at(receive.owner).ready, &receive);
  op.partner = partner.partner = nullptr;
  op.state = partner.state = Op::State::kWaiting;
  comm::WaitingOps<Op>& waiting = waiting_with(partner);
  Op* const first = waiting.find([&](const Op& one) { return same_message(one, partner); });
  if (first != nullptr && first->kind != partner.kind) return start(partner);
  waiting.push(partner, waiting.find([&](const Op& one) { return one.number > partner.number; }));
}

// Ends an op that nobody is copying.
void Hub::withdraw(Op& op) {
  if (op.state == Op::State::kMatched) {
    unmatch(op);
  } else {
    waiting_with(op).remove(op);
  }
  finish(op);
}

void Hub::finish(Op& op) {
  op.state = Op::State::kDone;
  op.partner = nullptr;
  if (at(op.owner).batches.close(*op.batch)) at(op.owner).news.notify_one();
}

// A batch settles as a whole: what is not being copied ends now.
void Hub::fail(Batch& batch, const Status& why) {
  if (batch.open == 0) return;
  if (batch.status.ok()) batch.status = why;
  for (Op& op : batch.ops) {
    if (op.state == Op::State::kWaiting || op.state == Op::State::kMatched) withdraw(op);
  }
}

void Hub::fail_all(int rank, const Status& why) {
  at(rank).batches.for_each_open([&](Batch& batch) { fail(batch, why); });
}

void Hub::fail_tickets_with(int peer, const std::string& reason, const Status& why) {
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == peer) continue;
    at(rank).batches.for_each_open([&](Batch& batch) {
      const auto open_with_peer = [&](const Op& op) {
        return op.peer == peer && op.state != Op::State::kDone && op.state != Op::State::kCopying;
      };
      if (std::ranges::none_of(batch.ops, open_with_peer)) return;
      if (!at(rank).lost) {
        at(rank).lost =
            LostPeer{.rank = peer,
                     .reason = reason,
                     .certain = true,
                     .cause = at(peer).closed ? LossCause::kClosed : LossCause::kConnection};
      }
      fail(batch, why);
    });
  }
}

// All learn why; a culprit that is not gone concerns only those who were rebuilt as often as its
// reporter. `reporter` < 0: it is plain to all.
void Hub::name(const LostPeer& culprit, int reporter) {
  for (int r = 0; r < size(); ++r) {
    const bool elsewhere = !is_member(culprit.rank, r) ||
                           (!culprit.gone && at(r).generation != at(reporter).generation);
    const bool accepted = culprit.gone && at(r).accepted.contains(culprit.rank);
    if (!at(r).lost && !elsewhere && !accepted) {
      const bool hearsay = reporter >= 0 && r != reporter;
      at(r).lost = culprit;
      at(r).lost->certain = true;
      if (hearsay) {
        at(r).lost->reason = format("reported by rank %d: %s", reporter, culprit.reason.c_str());
        at(r).lost->reporter = reporter;
      }
    }
    at(r).woken = true;
    at(r).news.notify_one();
  }
}

void Hub::lose(int rank, const std::string& reason, int reporter, LossCause cause) {
  name(LostPeer{.rank = rank, .reason = reason, .cause = cause}, reporter);
  if (at(rank).gone || at(rank).closed) return;
  at(rank).gone = reason;
  at(rank).silent_after.reset();
  fail_all(rank, Status(Code::kPeerLost,
                        format("rank %d is lost to the others: %s", rank, reason.c_str())));
  fail_tickets_with(rank, reason,
                    Status(Code::kPeerLost, format("rank %d lost: %s", rank, reason.c_str())));
}

void Hub::look_for_silence() {
  const Deadline now = std::chrono::steady_clock::now();
  if (!next_silence_ || now < *next_silence_) return;
  next_silence_.reset();
  for (int r = 0; r < size(); ++r) {
    if (!at(r).silent_after) continue;
    if (now >= *at(r).silent_after) {
      lose(r, format("no heartbeat for %.1f s", silence_seconds_), -1, LossCause::kSilence);
    } else if (!next_silence_ || *at(r).silent_after < *next_silence_) {
      next_silence_ = at(r).silent_after;
    }
  }
}

std::optional<Status> Hub::unreachable(int rank, std::span<const Transfer> batch) {
  if (at(rank).gone) {
    return Status(Code::kPeerLost,
                  format("rank %d is lost to the others: %s", rank, at(rank).gone->c_str()));
  }
  if (at(rank).severed) {
    return Status(Code::kCancelled, format("rank %d severed its connections", rank));
  }
  for (const Transfer& transfer : batch) {
    Rank& peer = at(transfer.peer);
    if (peer.closed) {
      if (!at(rank).lost) {
        at(rank).lost = LostPeer{.rank = transfer.peer,
                                 .reason = "closed",
                                 .certain = true,
                                 .cause = LossCause::kClosed};
      }
      return Status(Code::kPeerLost, format("rank %d closed", transfer.peer));
    }
    if (peer.gone) {
      return Status(Code::kPeerLost, format("rank %d lost: %s", transfer.peer, peer.gone->c_str()));
    }
  }
  return std::nullopt;
}

Ticket Hub::post(int rank, std::span<const Transfer> transfers) {
  const std::lock_guard lock(mutex_);
  Rank& self = at(rank);
  const std::optional<Status> why = unreachable(rank, transfers);
  Batch& batch = self.batches.add(why ? std::span<const Transfer>() : transfers);
  const Ticket ticket{batch.number};
  if (why) batch.status = *why;
  for (Op& op : batch.ops) {
    op.number = next_op_++;
    op.owner = rank;
    op.tag |= self.generation << kTagBits;
    if (clock_ != nullptr) op.posted = clock_->now(rank);
    start(op);
  }
  (void)self.batches.close(batch);
  return ticket;
}

int Hub::progress(int rank) {
  std::unique_lock lock(mutex_);
  look_for_silence();
  Rank& self = at(rank);
  std::vector<Op*> receives = std::move(self.spare);
  if (!self.silent_after) receives.swap(self.ready);
  for (Op* receive : receives) {
    receive->state = receive->partner->state = Op::State::kCopying;
    ++self.copying;
    ++at(receive->peer).copying;
  }
  if (!receives.empty()) {
    lock.unlock();
    for (const Op* receive : receives) {
      const ByteSpan from = receive->partner->data;
      if (!from.empty() && from.size() <= receive->data.size()) {
        std::memcpy(receive->data.data(), from.data(), from.size());
      }
    }
    lock.lock();
  }
  for (Op* receive : receives) {
    Op& send = *receive->partner;
    const std::size_t bytes = send.data.size();
    if (bytes <= receive->data.size()) {
      receive->arrived = bytes;
    } else {
      comm::refuse_long(*receive, bytes);
    }
    Rank& sender = at(send.owner);
    self.stats.bytes_received += bytes;
    ++self.stats.messages_received;
    sender.stats.bytes_sent += bytes;
    ++sender.stats.messages_sent;
    --self.copying;
    if (--sender.copying == 0) sender.news.notify_one();
    finish(send);
    finish(*receive);
  }
  receives.clear();
  self.spare = std::move(receives);
  return self.batches.take_settled();
}

std::optional<Status> Hub::poll(int rank, Ticket ticket) {
  const std::lock_guard lock(mutex_);
  comm::BatchTable<Op>& batches = at(rank).batches;
  const Batch* const batch = clock_ == nullptr ? nullptr : batches.find(ticket);
  if (batch != nullptr && batch->settled) {
    for (const Op& op : batch->ops) clock_->reach(rank, op.ended);
  }
  return batches.poll(ticket);
}

std::size_t Hub::received(int rank, Ticket ticket, std::size_t index) {
  const std::lock_guard lock(mutex_);
  return at(rank).batches.received(ticket, index);
}

bool Hub::has_message(int rank, int peer, std::uint64_t tag, std::uint64_t any) {
  const std::lock_guard lock(mutex_);
  Rank& self = at(rank);
  const std::uint64_t wanted = tag | self.generation << kTagBits;
  const auto is = [&](const Op& op) {
    return op.kind == Transfer::Kind::kSend && op.owner == peer && ((op.tag ^ wanted) & ~any) == 0;
  };
  const bool found = std::ranges::any_of(
      self.waiting, [&](const auto& waiting) { return waiting.find(is) != nullptr; });
  self.watches = self.watches || !found;
  return found;
}

void Hub::cancel(int rank, Ticket ticket) {
  const std::lock_guard lock(mutex_);
  Batch* const batch = at(rank).batches.find(ticket);
  if (batch != nullptr) fail(*batch, comm::cancelled_by(rank));
}

std::optional<LostPeer> Hub::lost(int rank) {
  const std::lock_guard lock(mutex_);
  look_for_silence();
  return at(rank).lost;
}

void Hub::announce(int rank, const LostPeer& culprit) {
  const std::lock_guard lock(mutex_);
  if (culprit.rank < 0 || culprit.rank >= size() || at(rank).gone || at(rank).silent_after) return;
  if (culprit.gone) return lose(culprit.rank, culprit.reason, rank, culprit.cause);
  name(culprit, rank);
}

void Hub::wait(int rank, Deadline until) {
  std::unique_lock lock(mutex_);
  look_for_silence();
  Rank& self = at(rank);
  // Silence has no event of its own: whoever waits looks for it.
  if (next_silence_) until = std::min(until, *next_silence_);
  self.news.wait_until(lock, until, [&] {
    return self.woken || self.batches.any_settled() || (!self.ready.empty() && !self.silent_after);
  });
  self.woken = false;
  look_for_silence();
}

void Hub::wake(int rank) {
  const std::lock_guard lock(mutex_);
  at(rank).woken = true;
  at(rank).news.notify_one();
}

TransportStats Hub::stats(int rank) {
  const std::lock_guard lock(mutex_);
  return at(rank).stats;
}

void Hub::kill(int rank) {
  const std::lock_guard lock(mutex_);
  lose(rank, "killed", -1);
}

void Hub::stop(int rank) {
  const std::lock_guard lock(mutex_);
  if (at(rank).gone || at(rank).closed) return;
  at(rank).silent_after = deadline_in(silence_seconds_);
  if (!next_silence_) next_silence_ = at(rank).silent_after;
  for (Rank& each : ranks_) {  // so that sleepers take the new bound into account
    each.woken = true;
    each.news.notify_one();
  }
}

void Hub::close(int rank) {
  std::unique_lock lock(mutex_);
  Rank& self = at(rank);
  // A copy that has begun ends by itself: it waits for nobody.
  fail_all(rank, Status(Code::kCancelled, format("rank %d closed its transport", rank)));
  self.news.wait(lock, [&] { return self.copying == 0; });
  if (self.silent_after) lose(rank, "gone while stopped", -1);
  if (!self.gone) {
    self.closed = true;
    fail_tickets_with(rank, "closed", Status(Code::kPeerLost, format("rank %d closed", rank)));
  }
}

// What the ranks of one process do when one of them is gone: notes, and going on without it.

bool Hub::is_member(int rank, int of) const {
  const auto& members = ranks_[static_cast<std::size_t>(of)].members;
  return !members || std::ranges::binary_search(*members, rank);
}

void Hub::tell(int rank, int peer, ConstByteSpan note) {
  const std::lock_guard lock(mutex_);
  const Rank& self = at(rank);
  Rank& other = at(peer);
  if (self.gone || self.silent_after || other.gone || other.closed) return;
  other.notes.push_back({rank, {note.begin(), note.end()}});
  other.woken = true;
  other.news.notify_one();
}

std::vector<Note> Hub::take_notes(int rank) {
  const std::lock_guard lock(mutex_);
  Rank& self = at(rank);
  if (self.gone || self.silent_after) return {};
  return std::exchange(self.notes, {});
}

// Threads of one process cannot be parted: who is gone is gone for certain.
void Hub::accept_losses(int rank) {
  const std::lock_guard lock(mutex_);
  at(rank).lost.reset();
  for (int r = 0; r < size(); ++r) {
    if (at(r).gone) at(rank).accepted.insert(r);
  }
}

std::vector<LostPeer> Hub::all_lost(int rank) {
  const std::lock_guard lock(mutex_);
  look_for_silence();
  std::vector<LostPeer> lost;
  for (int r = 0; r < size(); ++r) {
    if (!is_member(r, rank)) continue;
    if (at(r).gone) lost.push_back({.rank = r, .reason = *at(r).gone, .certain = true});
    if (at(r).closed && r != rank) {
      lost.push_back({.rank = r, .reason = "closed", .certain = true, .cause = LossCause::kClosed});
    }
  }
  return lost;
}

void Hub::sever(int rank) {
  std::unique_lock lock(mutex_);
  Rank& self = at(rank);
  self.severed = true;
  fail_all(rank, Status(Code::kCancelled, format("rank %d severed its connections", rank)));
  // A copy that has begun ends by itself: it waits for nobody.
  self.news.wait(lock, [&] { return self.copying == 0; });
}

Status Hub::rebuild(int rank, std::span<const int> survivors, std::uint32_t generation) {
  const std::lock_guard lock(mutex_);
  Rank& self = at(rank);
  for (const int survivor : survivors) {
    if (!at(survivor).gone && !at(survivor).closed) continue;
    return {Code::kPeerLost, format("rank %d lost: %s", survivor,
                                    at(survivor).closed ? "closed" : at(survivor).gone->c_str())};
  }
  fail_all(rank,
           Status(Code::kCancelled, format("rank %d begins generation %u", rank, generation)));
  self.members.emplace(survivors.begin(), survivors.end());
  self.generation = generation;
  self.lost.reset();
  self.severed = false;
  return {};
}

}  // namespace gradwire::inproc
