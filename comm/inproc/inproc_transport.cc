#include "comm/inproc/inproc_transport.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/philox.h"
#include "base/text.h"
#include "comm/members.h"
#include "comm/tickets.h"

namespace gradwire {
namespace inproc {
namespace {

// Where an op's tag has its generation.
constexpr int kTagBits = 40;

struct Op : comm::Message<Op> {
  // Waiting: in its receiver's list. Matched: met its partner, nothing copied yet, can be undone.
  // Copying: the receiver's thread is reading and writing the memory; nobody else may end it.
  enum class State : std::uint8_t { kWaiting, kMatched, kCopying, kDone } state = State::kWaiting;
  Op* partner = nullptr;
  int owner = 0;
  std::uint64_t number = 0;  // in the order of posting
  ExactTime posted;          // both of the clock, if there is one
  ExactTime ended;
};
using Batch = comm::Batch<Op>;

int source_of(const Op& op) { return op.kind == Transfer::Kind::kSend ? op.owner : op.peer; }
int target_of(const Op& op) { return op.kind == Transfer::Kind::kSend ? op.peer : op.owner; }

bool same_message(const Op& one, const Op& other) {
  return one.tag == other.tag && source_of(one) == source_of(other);
}

// What the ranks of one process share: who is alive, and which sends wait for which receives. One
// mutex guards everything but the copying itself: functions and members need it.
struct Hub {
  // Messages that wait, by hash of source and tag; of equal ones only sends, or only receives.
  using Waiting = std::array<comm::WaitingOps<Op>, 64>;

  struct Rank {
    void wake() {
      woken = true;
      news.notify_one();
    }

    std::condition_variable news;
    bool woken = false;
    bool watches = false;  // a send to this rank that meets no receive wakes it
    int copying = 0;       // own ops in state kCopying
    comm::BatchTable<Op> batches;
    Waiting waiting;                // of messages addressed to this rank
    std::vector<Op*> ready, spare;  // own receives in state kMatched; memory for the next of them
    TransportStats stats;
    std::optional<LostPeer> lost;
    std::set<int> accepted;  // ranks whose loss is no news to it
    bool closed = false;
    std::optional<LostPeer> gone;  // why no peer can reach this rank any more; not if it closed
    std::optional<Deadline> silent_after;
    std::vector<Note> notes;
    bool severed = false;
    std::uint64_t generation = 0;
    std::optional<std::vector<int>> members;  // since the last rebuild; before it, all
  };

  Hub(int ranks, double silence, std::shared_ptr<MessageClock> times)
      : silence_seconds(silence), clock(std::move(times)), all(static_cast<std::size_t>(ranks)) {}

  int size() const { return static_cast<int>(all.size()); }
  Rank& at(int rank) { return all[static_cast<std::size_t>(rank)]; }
  comm::WaitingOps<Op>& waiting_with(const Op& op);
  void start(Op& op);
  void unmatch(Op& op);
  void withdraw(Op& op);
  void finish(Op& op);
  void fail(Batch& batch, const Status& why);
  void fail_all(int rank, const Status& why);
  void fail_tickets_with(int peer);
  void lose(int rank, const std::string& reason, int reporter,
            LossCause cause = LossCause::kConnection);
  void name(const LostPeer& loss, int reporter);
  LostPeer end_of(int rank);
  Status why(int rank);
  Status cut_off(int rank);
  bool is_member(int rank, int of) const;
  void look_for_silence();
  std::optional<Status> unreachable(int rank, std::span<const Transfer> batch);

  const double silence_seconds;
  const std::shared_ptr<MessageClock> clock;  // may be null
  std::mutex mutex;
  std::deque<Rank> all;  // a deque: condition variables do not move
  std::uint64_t next_op = 0;
  std::optional<Deadline> next_silence;
};

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
      target.wake();
    }
    return;
  }
  op.partner = partner;
  partner->partner = &op;
  op.state = partner->state = Op::State::kMatched;
  Op& receive = op.kind == Transfer::Kind::kRecv ? op : *partner;
  if (clock != nullptr) {
    Op& send = *receive.partner;
    send.ended = receive.ended =
        clock->carry(send.owner, receive.owner, send.data.size(), send.posted, receive.posted);
  }
  at(receive.owner).ready.push_back(&receive);
  at(receive.owner).news.notify_one();
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

// Of a rank that has closed, or is gone.
LostPeer Hub::end_of(int rank) {
  if (!at(rank).closed) return *at(rank).gone;
  return {.rank = rank, .reason = "closed", .certain = true, .cause = LossCause::kClosed};
}

Status Hub::why(int rank) {
  if (at(rank).closed) return {Code::kPeerLost, format("rank %d closed", rank)};
  return {Code::kPeerLost, format("rank %d lost: %s", rank, at(rank).gone->reason.c_str())};
}

// What a rank that is gone hears itself.
Status Hub::cut_off(int rank) {
  return {Code::kPeerLost,
          format("rank %d is lost to the others: %s", rank, at(rank).gone->reason.c_str())};
}

void Hub::fail_tickets_with(int peer) {
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == peer) continue;
    at(rank).batches.for_each_open([&](Batch& batch) {
      const auto open_with_peer = [&](const Op& op) {
        return op.peer == peer && op.state != Op::State::kDone && op.state != Op::State::kCopying;
      };
      if (std::ranges::none_of(batch.ops, open_with_peer)) return;
      if (!at(rank).lost) at(rank).lost = end_of(peer);
      fail(batch, why(peer));
    });
  }
}

// All learn why; a rank that is not gone concerns only those who were rebuilt as often as its
// reporter. `reporter` < 0: it is plain to all.
void Hub::name(const LostPeer& loss, int reporter) {
  for (int r = 0; r < size(); ++r) {
    const bool elsewhere =
        !is_member(loss.rank, r) || (!loss.gone && at(r).generation != at(reporter).generation);
    const bool accepted = loss.gone && at(r).accepted.contains(loss.rank);
    if (!at(r).lost && !elsewhere && !accepted) {
      const bool hearsay = reporter >= 0 && r != reporter;
      at(r).lost = loss;
      at(r).lost->certain = true;
      if (hearsay) {
        at(r).lost->reason = format("reported by rank %d: %s", reporter, loss.reason.c_str());
        at(r).lost->reporter = reporter;
      }
    }
    at(r).wake();
  }
}

void Hub::lose(int rank, const std::string& reason, int reporter, LossCause cause) {
  name(LostPeer{.rank = rank, .reason = reason, .cause = cause}, reporter);
  if (at(rank).gone || at(rank).closed) return;
  at(rank).gone = LostPeer{.rank = rank, .reason = reason, .certain = true, .cause = cause};
  at(rank).silent_after.reset();
  fail_all(rank, cut_off(rank));
  fail_tickets_with(rank);
}

void Hub::look_for_silence() {
  const Deadline now = std::chrono::steady_clock::now();
  if (!next_silence || now < *next_silence) return;
  next_silence.reset();
  for (int r = 0; r < size(); ++r) {
    if (!at(r).silent_after) continue;
    if (now >= *at(r).silent_after) {
      lose(r, format("no heartbeat for %.1f s", silence_seconds), -1, LossCause::kSilence);
    } else if (!next_silence || *at(r).silent_after < *next_silence) {
      next_silence = at(r).silent_after;
    }
  }
}

std::optional<Status> Hub::unreachable(int rank, std::span<const Transfer> batch) {
  if (at(rank).gone) return cut_off(rank);
  if (at(rank).severed) {
    return Status(Code::kCancelled, format("rank %d severed its connections", rank));
  }
  for (const Transfer& transfer : batch) {
    const Rank& peer = at(transfer.peer);
    if (peer.closed && !at(rank).lost) at(rank).lost = end_of(transfer.peer);
    if (peer.closed || peer.gone) return why(transfer.peer);
  }
  return std::nullopt;
}

bool Hub::is_member(int rank, int of) const {
  const auto& members = all[static_cast<std::size_t>(of)].members;
  return !members || std::ranges::binary_search(*members, rank);
}

class InprocTransport final : public Transport {
 public:
  InprocTransport(std::shared_ptr<Hub> hub, int rank)
      : hub_(std::move(hub)), rank_(rank), self_(hub_->at(rank)), left_(hub_->size()) {}
  // The goodbye: afterwards nothing of this rank's memory is referred to.
  ~InprocTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  TransportCaps caps() const override { return {.notes = true}; }
  TransportStats stats() const override {
    const std::lock_guard lock(hub_->mutex);
    return self_.stats;
  }
  bool is_crowded() const override;
  std::string describe() const override {
    return format("inproc: %d ranks as threads, one copy from sender to receiver", size());
  }
  Result<Ticket> post(std::span<const Transfer> transfers) override;
  // Copies what has met and was addressed to this rank.
  Result<int> progress() override;
  std::optional<Status> poll(Ticket ticket) override;
  std::size_t received(Ticket ticket, std::size_t index) const override {
    const std::lock_guard lock(hub_->mutex);
    return self_.batches.received(ticket, index);
  }
  bool has_message(int peer, Tag tag, std::uint64_t any) override;
  void cancel(Ticket ticket) override;
  std::optional<LostPeer> lost() const override {
    const std::lock_guard lock(hub_->mutex);
    hub_->look_for_silence();
    return self_.lost;
  }
  void announce(const LostPeer& loss) override;
  Status wait(Deadline until) override;
  void wake() override {
    const std::lock_guard lock(hub_->mutex);
    self_.wake();
  }
  void tell(int peer, ConstByteSpan note) override;
  std::vector<Note> take_notes() override;
  std::vector<LostPeer> all_lost() const override;
  bool accept_losses() override;
  bool sever() override;
  Status rebuild(std::span<const int> survivors, std::uint32_t generation, Deadline until) override;

  void kill() {
    const std::lock_guard lock(hub_->mutex);
    hub_->lose(rank_, "killed", -1);
  }
  void stop();

 private:
  std::shared_ptr<Hub> hub_;
  int rank_;
  Hub::Rank& self_;
  int left_;  // ranks, since the last rebuild
};

// A copy that has begun ends by itself: it waits for nobody.
InprocTransport::~InprocTransport() {
  std::unique_lock lock(hub_->mutex);
  hub_->fail_all(rank_, Status(Code::kCancelled, format("rank %d closed its transport", rank_)));
  self_.news.wait(lock, [&] { return self_.copying == 0; });
  if (self_.silent_after) hub_->lose(rank_, "gone while stopped", -1);
  if (!self_.gone) {
    self_.closed = true;
    hub_->fail_tickets_with(rank_);
  }
}

// All are threads of this process.
bool InprocTransport::is_crowded() const {
  const std::vector all(static_cast<std::size_t>(left_), comm::usable_processors());
  return comm::is_crowded(all);
}

Result<Ticket> InprocTransport::post(std::span<const Transfer> transfers) {
  GW_TRY(comm::check_batch(transfers, size(), "the in-process transport takes no other"));
  const std::lock_guard lock(hub_->mutex);
  const std::optional<Status> why = hub_->unreachable(rank_, transfers);
  Batch& batch = self_.batches.add(why ? std::span<const Transfer>() : transfers);
  const Ticket ticket{batch.number};
  if (why) batch.status = *why;
  for (Op& op : batch.ops) {
    op.number = hub_->next_op++;
    op.owner = rank_;
    op.tag |= self_.generation << kTagBits;
    if (hub_->clock != nullptr) op.posted = hub_->clock->now(rank_);
    hub_->start(op);
  }
  (void)self_.batches.close(batch);
  return ticket;
}

Result<int> InprocTransport::progress() {
  std::unique_lock lock(hub_->mutex);
  hub_->look_for_silence();
  std::vector<Op*> receives = std::move(self_.spare);
  if (!self_.silent_after) receives.swap(self_.ready);
  for (Op* receive : receives) {
    receive->state = receive->partner->state = Op::State::kCopying;
    ++self_.copying;
    ++hub_->at(receive->peer).copying;
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
    Hub::Rank& sender = hub_->at(send.owner);
    self_.stats.bytes_received += bytes;
    ++self_.stats.messages_received;
    sender.stats.bytes_sent += bytes;
    ++sender.stats.messages_sent;
    --self_.copying;
    if (--sender.copying == 0) sender.news.notify_one();
    hub_->finish(send);
    hub_->finish(*receive);
  }
  receives.clear();
  self_.spare = std::move(receives);
  return self_.batches.take_settled();
}

std::optional<Status> InprocTransport::poll(Ticket ticket) {
  const std::lock_guard lock(hub_->mutex);
  const Batch* const batch = hub_->clock == nullptr ? nullptr : self_.batches.find(ticket);
  if (batch != nullptr && batch->settled) {
    for (const Op& op : batch->ops) hub_->clock->reach(rank_, op.ended);
  }
  return self_.batches.poll(ticket);
}

bool InprocTransport::has_message(int peer, Tag tag, std::uint64_t any) {
  const std::lock_guard lock(hub_->mutex);
  const std::uint64_t wanted = tag.bits() | self_.generation << kTagBits;
  const auto is = [&](const Op& op) {
    return op.kind == Transfer::Kind::kSend && op.owner == peer && ((op.tag ^ wanted) & ~any) == 0;
  };
  const bool found = std::ranges::any_of(
      self_.waiting, [&](const auto& waiting) { return waiting.find(is) != nullptr; });
  self_.watches = self_.watches || !found;
  return found;
}

void InprocTransport::cancel(Ticket ticket) {
  const std::lock_guard lock(hub_->mutex);
  Batch* const batch = self_.batches.find(ticket);
  if (batch != nullptr) hub_->fail(*batch, comm::cancelled_by(rank_));
}

void InprocTransport::announce(const LostPeer& loss) {
  const std::lock_guard lock(hub_->mutex);
  if (loss.rank < 0 || loss.rank >= size() || self_.gone || self_.silent_after) return;
  if (loss.gone) return hub_->lose(loss.rank, loss.reason, rank_, loss.cause);
  hub_->name(loss, rank_);
}

Status InprocTransport::wait(Deadline until) {
  std::unique_lock lock(hub_->mutex);
  hub_->look_for_silence();
  // Silence has no event of its own: a thread that waits looks for it.
  if (hub_->next_silence) until = std::min(until, *hub_->next_silence);
  self_.news.wait_until(lock, until, [&] {
    return self_.woken || self_.batches.any_settled() ||
           (!self_.ready.empty() && !self_.silent_after);
  });
  self_.woken = false;
  hub_->look_for_silence();
  return {};
}

void InprocTransport::stop() {
  const std::lock_guard lock(hub_->mutex);
  if (self_.gone || self_.closed) return;
  self_.silent_after = deadline_in(hub_->silence_seconds);
  if (!hub_->next_silence) hub_->next_silence = self_.silent_after;
  for (Hub::Rank& each : hub_->all) each.wake();  // sleepers take the new bound into account
}

void InprocTransport::tell(int peer, ConstByteSpan note) {
  if (peer < 0 || peer >= size() || note.size() > kMostNoteBytes) return;
  const std::lock_guard lock(hub_->mutex);
  Hub::Rank& other = hub_->at(peer);
  if (self_.gone || self_.silent_after || other.gone || other.closed) return;
  other.notes.push_back({rank_, {note.begin(), note.end()}});
  other.wake();
}

std::vector<Note> InprocTransport::take_notes() {
  const std::lock_guard lock(hub_->mutex);
  if (self_.gone || self_.silent_after) return {};
  return std::exchange(self_.notes, {});
}

std::vector<LostPeer> InprocTransport::all_lost() const {
  const std::lock_guard lock(hub_->mutex);
  hub_->look_for_silence();
  std::vector<LostPeer> lost;
  for (int r = 0; r < size(); ++r) {
    const Hub::Rank& one = hub_->at(r);
    const bool ended = one.gone || (one.closed && r != rank_);
    if (ended && hub_->is_member(r, rank_)) lost.push_back(hub_->end_of(r));
  }
  return lost;
}

// Threads of one process cannot be parted: who is gone is gone for certain.
bool InprocTransport::accept_losses() {
  const std::lock_guard lock(hub_->mutex);
  self_.lost.reset();
  for (int r = 0; r < size(); ++r) {
    if (hub_->at(r).gone) self_.accepted.insert(r);
  }
  return true;
}

// As the destructor, of a copy that has begun.
bool InprocTransport::sever() {
  std::unique_lock lock(hub_->mutex);
  self_.severed = true;
  hub_->fail_all(rank_, Status(Code::kCancelled, format("rank %d severed its connections", rank_)));
  self_.news.wait(lock, [&] { return self_.copying == 0; });
  return true;
}

Status InprocTransport::rebuild(std::span<const int> survivors, std::uint32_t generation,
                                Deadline) {
  const std::lock_guard lock(hub_->mutex);
  for (const int survivor : survivors) {
    const Hub::Rank& one = hub_->at(survivor);
    if (one.gone || one.closed) return hub_->why(survivor);
  }
  hub_->fail_all(
      rank_, Status(Code::kCancelled, format("rank %d begins generation %u", rank_, generation)));
  self_.members.emplace(survivors.begin(), survivors.end());
  self_.generation = generation;
  self_.lost.reset();
  self_.severed = false;
  left_ = static_cast<int>(survivors.size());
  return {};
}

}  // namespace
}  // namespace inproc

Result<std::vector<std::unique_ptr<Transport>>> make_inproc_transports(
    int size, const InprocOptions& options) {
  if (size < 1 || size > 65536) {
    return Status(Code::kInvalidArgument, format("inproc: %d ranks (expected 1 to 65536)", size));
  }
  auto hub = std::make_shared<inproc::Hub>(size, options.silence_seconds, options.clock);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < size; ++rank) {
    transports.push_back(std::make_unique<inproc::InprocTransport>(hub, rank));
  }
  return transports;
}

void kill_rank(Transport& transport) {
  if (auto* self = dynamic_cast<inproc::InprocTransport*>(&transport)) self->kill();
}

void stop_rank(Transport& transport) {
  if (auto* self = dynamic_cast<inproc::InprocTransport*>(&transport)) self->stop();
}

}  // namespace gradwire
