#include "collectives/shm/messages.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "base/text.h"
#include "collectives/engine/operation.h"
#include "collectives/engine/progress.h"
#include "collectives/engine/runnable.h"
#include "collectives/engine/work_state.h"
#include "collectives/failure/flight_recorder.h"
#include "collectives/shm/memory_path.h"
#include "collectives/shm/moves.h"
#include "comm/shm/peer_memory.h"

namespace gradwire {
namespace {

using Kind = MessageRing::Kind;
using Clock = std::chrono::steady_clock;

// Bytes of short messages to one peer that no receive has taken; what comes then is lent.
constexpr std::uint64_t kMostUntaken = 4 << 20;
// Of a longer message, between two looks at the others.
constexpr std::size_t kCopyBytes = 1 << 20;
// A short message up to this size waits for room in the ring; a longer one is lent.
constexpr std::size_t kMostWaiting = 1 << 10;
constexpr std::size_t kLentPage = 4096;
constexpr std::ptrdiff_t kFirstSends = 4;
constexpr std::ptrdiff_t kFirstCopies = 4;
// What a receiver copies without its sender's help, in one call.
constexpr std::uint32_t kMostPulled = 16;
// A sender that has helped is waited for so long: it may have something else to copy.
constexpr std::chrono::microseconds kForHelp{30};
// Parts that are copied without help before it is tried again.
constexpr std::uint32_t kPulledBetween = 64;
// A sender that sleeps is woken for the sake of its help from so many bytes on.
constexpr std::size_t kWorthWaking = 256 << 10;
constexpr int kLooksAtFirst = 16;
// Slots of the pool that are looked at before it grows.
constexpr std::size_t kPoolLooks = 8;
// Looks without success before the engine has it, some 100 us: as long as the engine would look.
constexpr int kMessageLooks = 400;
constexpr int kPauses = 8;
constexpr int kMostMovingLooks = 1 << 20;
constexpr int kLooksBeforeClock = 64;
// While messages move, one that does not is the engine's after so many visits, some 100 ms.
constexpr int kMostVisits = 200;
// What is kept for later sends and receives; more than these goes when it is not in use.
constexpr std::size_t kMostPooled = 256;

void average(double& of, std::chrono::duration<double> taken, std::size_t bytes) {
  const double each = taken.count() / static_cast<double>(bytes);
  of = of == 0 ? each : of + (each - of) / 4;
}

}  // namespace

// A send, a receive or a probe that has not ended when its call returns. Used again when it has
// ended and its Work is gone.
struct ShmMessages::Open {
  explicit Open(const std::weak_ptr<ProgressEngine>& engine) : own(engine) {}

  WorkState& work() { return batch ? *batch : own; }
  bool matches(int from, int its_tag) const {
    return (peer == from || peer == kAnySource) && tag == its_tag;
  }

  WorkState own;
  bool own_used = false;
  std::shared_ptr<WorkState> batch;  // instead of its own
  std::atomic<bool> busy{false};     // until all that know of it have been told
  Open* next_ended = nullptr;

  OpKind kind = OpKind::kSend;
  bool is_probe = false;
  int peer = 0;
  int tag = 0;
  DType dtype = DType::kU8;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::int64_t elems = 0;
  std::size_t bytes = 0;
  std::optional<Deadline> deadline;

  bool handed = false;   // the engine has it
  int visits = 0;        // how often the engine has asked
  bool in_ring = false;  // of a send: lent
  bool copying = false;
  std::atomic<bool> ended{false};
  int source = -1;
  Status failure;
  Kind from = Kind::kInline;  // of what is being copied
  std::uint64_t place = 0;
  std::uint64_t lent = 0;    // its LentMessage's offset
  bool all_claimed = false;  // of a lent send: its parts have somebody who copies them
  bool is_shared = false;    // of a receive: its sender may help
  std::size_t copied = 0;
  std::uint32_t taken = 0;   // parts, out of the stage
  std::uint32_t pulled = 0;  // and without it
  std::uint32_t wanted = 0;  // its LentMessage's
};

// The lock, and what is to be done without it for what has ended meanwhile.
class ShmMessages::Look {
 public:
  // kStart: who may sleep is rung later, within a millisecond or so. kEngine: the engine looks
  // when no caller does, and is not to take the lock's bias from the caller that looks next.
  enum class By : std::uint8_t { kCaller, kStart, kEngine };
  explicit Look(ShmMessages& messages, By by = By::kCaller) : messages_(messages), by_(by) {
    by == By::kEngine ? messages.mutex_.lock_as_guest() : messages.mutex_.lock();
  }
  ~Look() {
    if (by_ != By::kStart) messages_.ring_peers();
    Open* ended = std::exchange(messages_.ended_, nullptr);
    messages_.mutex_.unlock();
    while (ended != nullptr) {
      Open* const one = std::exchange(ended, ended->next_ended);
      if (one->batch) {
        std::exchange(one->batch, nullptr)->finish({});
      } else {
        one->own.finish_alone();
      }
      one->busy.store(false, std::memory_order_release);
    }
  }
  Look(const Look&) = delete;
  Look& operator=(const Look&) = delete;

 private:
  ShmMessages& messages_;
  By by_;
};

// What the engine has of it.
class ShmMessages::Run final : public Runnable {
 public:
  Run(std::shared_ptr<ShmMessages> messages, OpenPtr one)
      : messages_(std::move(messages)), one_(std::move(one)) {}
  ~Run() override { one_->busy.store(false, std::memory_order_release); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Result<bool> advance(Transport&, ScratchPool&) override {
    const Look look(*messages_, Look::By::kEngine);
    const bool moved = messages_->poll();
    if (!one_->failure.ok()) return one_->failure;
    if (one_->ended) return true;
    const int closed = messages_->closed_peer(*one_);
    if (closed < 0) return moved;
    return Status(Code::kPeerLost, format("rank %d closed", closed));
  }
  bool done() const override { return one_->ended; }
  void cancel(Transport&) override { refuse(); }
  bool settled(Transport&) override { return true; }
  void refuse() override {
    const Look look(*messages_, Look::By::kEngine);
    messages_->give_up();
    messages_->forget(*one_);
  }
  void release(ScratchPool&) override {
    const Look look(*messages_, Look::By::kEngine);
    messages_->forget(*one_);
  }
  std::vector<int> waiting_for(const Transport&) const override {
    const Look look(*messages_, Look::By::kEngine);
    return messages_->waiting_for(*one_);
  }
  int closed_peer() const override {
    const Look look(*messages_, Look::By::kEngine);
    return one_->ended ? -1 : messages_->closed_peer(*one_);
  }
  const Route& route() const override { return messages_->route_; }
  std::uint64_t bytes_sent() const override {
    return one_->ended && one_->kind == OpKind::kSend ? one_->bytes : 0;
  }
  Awaited awaited() const override { return {.memory = true}; }
  bool ready() const override {
    const Look look(*messages_, Look::By::kEngine);
    return one_->ended || messages_->is_ready(*one_);
  }

 private:
  std::shared_ptr<ShmMessages> messages_;
  OpenPtr one_;
};

ShmMessages::ShmMessages(const Group& group, std::shared_ptr<ShmBoards> boards,
                         std::vector<int> places, std::span<const std::uint64_t> outboxes)
    : engine_(group.engine()),
      fate_(group.fate()),
      route_(group.route_of(0)),
      waiting_(group.options().waiting),
      deadline_seconds_(group.options().deadline_seconds),
      boards_(std::move(boards)),
      bytes_(boards_->make_counter()),
      places_(std::move(places)),
      rank_(group.rank()),
      peers_(static_cast<std::size_t>(size())) {
  for (const std::uint64_t at : outboxes) {
    outboxes_.push_back(reinterpret_cast<ShmOutbox*>(boards_->arena().at(at)));
  }
  for (int p = 0; p < size(); ++p) {
    peer(p).out.ring = &outbox(rank_).ring(p);
    peer(p).in.ring = &outbox(p).ring(rank_);
  }
}

ShmMessages::~ShmMessages() {
  if (mark_.in_child()) return;
  if (closes_) {
    outbox(rank_).gone.store(1, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (int p = 0; p < size(); ++p) {
      if (p != rank_) bell(p).ring_if_asleep();
    }
  }
  if (!is_broken()) {
    for (const std::uint64_t page : lent_pages_) boards_->arena().give_back(page, kLentPage);
    if (stage_ != 0) boards_->arena().give_back(stage_, sizeof(MessageStage));
  }
  for (ShmOutbox* const each : outboxes_) {
    each->common.left.fetch_add(1, std::memory_order_release);
  }
}

// Starting, in the caller's thread.

Result<Work> ShmMessages::start(const CheckedCall& call, const std::shared_ptr<WorkState>& batch) {
  const bool sends = call.call.kind == OpKind::kSend;
  std::shared_ptr<WorkState> own;
  OpenPtr failed;
  bool attend = false;
  bool ended = false;
  {
    const Look look(*this, Look::By::kStart);
    ended = sends ? send_at_once(call) : take_at_once(call);
    if (!ended) {
      const OpenPtr& one = open(call, batch);
      if (!batch) own = std::shared_ptr<WorkState>(one, &one->own);
      if (sends) {
        ++peer(one->peer).unsent;
        sends_.push_back(one.get());
        pushes_ = ~0U;  // the next look is at all
        (void)push_sends();
      } else {
        post(*one);
      }
      one->handed = !one->failure.ok();
      if (one->handed) failed = one;
      attend = !one->ended;
    }
    attend = (attend || !to_ring_.empty()) && !std::exchange(attended_, true);
  }
  if (ended && batch) batch->finish({});
  if (failed) submit_one(engine_.lock().get(), failed);
  if (attend) {
    if (const auto engine = engine_.lock()) engine->attend(weak_from_this());
  }
  return Work(std::move(own));
}

// True when a short message is on its way.
bool ShmMessages::send_at_once(const CheckedCall& call) {
  const ConstByteSpan data = call.call.in.bytes();
  Peer& to = peer(call.call.peer);
  if (data.size() > MessageRing::kMostInline || to.unsent > 0 || to.out.has_untaken(kMostUntaken) ||
      !to.out.write({.tag = call.call.tag, .dtype = call.extent.dtype, .data = data})) {
    return false;
  }
  note_written(call.call.peer);
  count(data.size());
  return true;
}

// True when a short message was there.
bool ShmMessages::take_at_once(const CheckedCall& call) {
  const int from = call.call.peer;
  if (from == kAnySource || !receives_.empty() || !probes_.empty()) return false;
  Peer& its = peer(from);
  if (!its.early.empty()) return false;
  MessageRing::Head* head = its.in.peek();
  const ByteSpan out = call.call.out.bytes();
  if (head == nullptr || head->tag != call.call.tag || head->kind != Kind::kInline ||
      head->dtype != static_cast<std::uint8_t>(call.extent.dtype) || head->payload != out.size()) {
    return false;
  }
  if (!out.empty()) std::memcpy(out.data(), MessageRing::payload(*head), out.size());
  its.in.take(out.size());
  if (its.in.pop(*head)) note_ring(from);
  return true;
}

const ShmMessages::OpenPtr& ShmMessages::open(const CheckedCall& checked,
                                              const std::shared_ptr<WorkState>& batch) {
  const OpCall& call = checked.call;
  const OpenPtr& one = unused();
  one->own_used = batch == nullptr;
  one->batch = batch;
  if (batch) batch->set_quick(weak_from_this());
  one->kind = call.kind;
  one->is_probe = false;
  one->peer = call.peer;
  one->tag = call.tag;
  one->dtype = checked.extent.dtype;
  one->in = call.in.data();
  one->out = call.out.data();
  one->elems = checked.extent.agreed;
  one->bytes = static_cast<std::size_t>(one->elems) * size_of(one->dtype);
  one->deadline = checked.options.deadline;
  one->handed = one->in_ring = one->copying = false;
  one->visits = 0;
  one->ended.store(false, std::memory_order_relaxed);
  one->source = -1;
  one->busy.store(true, std::memory_order_relaxed);
  return one;
}

// One that has ended and that nobody knows any more, or a new one.
const ShmMessages::OpenPtr& ShmMessages::unused() {
  for (std::size_t i = 0; i < std::min(kPoolLooks, pool_.size()); ++i) {
    OpenPtr& one = pool_[next_in_pool_];
    next_in_pool_ = (next_in_pool_ + 1) % pool_.size();
    if (one->busy.load(std::memory_order_acquire) || one.use_count() > 1) continue;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (one->failure.ok() && (!one->own_used || one->own.begin_again())) return one;
    return one = make_open();
  }
  return pool_.emplace_back(make_open());
}

ShmMessages::OpenPtr ShmMessages::make_open() {
  auto one = std::make_shared<Open>(engine_);
  one->own.set_quick(weak_from_this());
  return one;
}

void ShmMessages::post(Open& receive) {
  (receive.is_probe ? probes_ : receives_).push_back(&receive);
  if (receive.peer != kAnySource) {
    ++peer(receive.peer).wanted;
    if (!meet_early(receive, receive.peer)) (void)drain(receive.peer);
    return;
  }
  ++any_wanted_;
  for (int p = 0; p < size() && !receive.ended && !receive.copying && receive.failure.ok(); ++p) {
    if (p != rank_ && !meet_early(receive, p)) (void)drain(p);
  }
}

void ShmMessages::unpost(Open& receive) {
  auto& posted = receive.is_probe ? probes_ : receives_;
  const auto at = std::ranges::find(posted, &receive);
  if (at == posted.end()) return;
  at == posted.begin() ? posted.pop_front() : static_cast<void>(posted.erase(at));
  --(receive.peer == kAnySource ? any_wanted_ : peer(receive.peer).wanted);
}

// Looking.

bool ShmMessages::poll() {
  bool moved = false;
  if (!receives_.empty() || !probes_.empty()) {
    for (int p = 0; p < size(); ++p) {
      if (p != rank_) moved = drain(p) || moved;
    }
  }
  moved = copy_next() || moved;
  moved = push_sends() || moved;
  moved = stage_next() || moved;
  moves_ += moved ? 1 : 0;
  return moved;
}

bool ShmMessages::meet_early(Open& receive, int from) {
  auto& early = peer(from).early;
  for (auto message = early.begin(); message != early.end(); ++message) {
    if (message->tag != receive.tag) continue;
    if (receive.is_probe) {
      meet_probe(receive, from);
      return true;
    }
    if (message->dtype != static_cast<std::uint8_t>(receive.dtype)) continue;
    meet(receive, from, message->message);
    early.erase(message);
    return true;
  }
  return false;
}

void ShmMessages::meet_probe(Open& probe, int from) {
  unpost(probe);
  probe.source = from;
  probe.work().set_source(from);
  end(probe);
}

// Takes what has come from there, as long as somebody waits for something from there.
bool ShmMessages::drain(int from) {
  Peer& its = peer(from);
  bool moved = false;
  while (its.wanted + any_wanted_ > 0) {
    MessageRing::Head* head = its.in.peek();
    if (head == nullptr) break;
    moved = true;
    Arrived message{
        .kind = head->kind, .lent = {.bytes = head->payload}, .data = MessageRing::payload(*head)};
    if (head->kind != Kind::kInline) std::memcpy(&message.lent, message.data, sizeof message.lent);
    const auto receive = std::ranges::find_if(receives_, [&](const Open* one) {
      return one->matches(from, head->tag) && static_cast<std::uint8_t>(one->dtype) == head->dtype;
    });
    if (receive != receives_.end()) {
      meet(**receive, from, message);
    } else {
      keep(from, *head, message);
    }
    if (its.in.pop(*head)) note_ring(from);
  }
  return moved;
}

void ShmMessages::keep(int from, const MessageRing::Head& head, const Arrived& message) {
  Early early{.tag = head.tag, .dtype = head.dtype, .message = message, .data = nullptr};
  if (message.kind == Kind::kInline) {
    early.data = std::make_unique_for_overwrite<std::byte[]>(message.lent.bytes);
    std::memcpy(early.data.get(), message.data, message.lent.bytes);
    early.message.data = early.data.get();
  }
  peer(from).early.push_back(std::move(early));
  const auto probe =
      std::ranges::find_if(probes_, [&](const Open* one) { return one->matches(from, head.tag); });
  if (probe != probes_.end()) meet_probe(**probe, from);
}

void ShmMessages::meet(Open& receive, int from, const Arrived& message) {
  unpost(receive);
  receive.source = from;
  if (receive.peer == kAnySource) receive.work().set_source(from);
  if (message.kind == Kind::kInline) peer(from).in.take(message.lent.bytes);
  if (message.lent.bytes != receive.bytes) {
    receive.failure =
        Status(Code::kRankMismatch, format("rank %d sent %zu bytes (expected %zu)", job_rank(from),
                                           message.lent.bytes, receive.bytes));
    return;
  }
  const bool is_lent = message.kind != Kind::kInline;  // also one of 0 bytes behind many others
  if (!is_lent || message.lent.bytes == 0) {
    if (message.lent.bytes > 0) std::memcpy(receive.out, message.data, message.lent.bytes);
    if (is_lent) lent_at(message.lent.words).done.store(1, std::memory_order_release);
    if (is_lent) note_written(from);
    return end(receive);
  }
  receive.from = message.kind;
  receive.place = message.lent.place;
  receive.lent = message.lent.words;
  receive.copied = 0;
  receive.taken = receive.pulled = receive.wanted = 0;
  receive.copying = true;
  receive.is_shared = message.kind == Kind::kInProcess && process_of(from) != getpid();
  if (receive.is_shared) {
    ask_for_help(receive);
    if (receive.bytes >= kWorthWaking) note_written(from);
  }
  copies_.push_back(&receive);
}

// Parts of one of the longer messages that were met first.
bool ShmMessages::copy_next() {
  if (copies_.empty() || is_broken()) return false;
  const auto end = copies_.begin() + std::min(kFirstCopies, std::ssize(copies_));
  auto one = std::find_if(copies_.begin(), end, [&](Open* each) { return take_staged(*each); });
  if (one == end) {
    one = std::find_if(copies_.begin(), end, [&](Open* each) { return copy(*each); });
  }
  if (one == end) return false;
  Open& receive = **one;
  if (receive.failure.ok() && receive.copied < receive.bytes) return true;
  finish_stores();
  // Else it may be something else that was read.
  if (is_broken()) return false;
  copies_.erase(one);
  if (!receive.failure.ok()) return true;
  lent_at(receive.lent).done.store(1, std::memory_order_release);
  note_written(receive.source);
  this->end(receive);
  return true;
}

// Whether a look would copy something of it.
bool ShmMessages::has_part(const Open& receive) const {
  if (!receive.is_shared) return true;
  const LentMessage& lent = lent_at(receive.lent);
  return lent.next.load(std::memory_order_relaxed) < LentMessage::parts(receive.bytes) ||
         lent.staged.load(std::memory_order_acquire) != receive.taken;
}

// False where its sender has staged nothing more.
bool ShmMessages::take_staged(Open& receive) {
  if (!receive.is_shared) return false;
  const LentMessage& lent = lent_at(receive.lent);
  if (lent.staged.load(std::memory_order_acquire) == receive.taken) return false;
  const Deadline start = Clock::now();
  MessageStage& stage = stage_at(lent.stage);
  const int slot = lent.slots[receive.taken++ % LentMessage::kSlots];
  const std::size_t begin = stage.slots[slot].part * LentMessage::kPart;
  const std::size_t bytes = std::min(LentMessage::kPart, receive.bytes - begin);
  copy_with(stores_for(receive.bytes), receive.out + begin, stage.bytes[slot], bytes);
  receive.copied += bytes;
  stage.slots[slot].full.store(0, std::memory_order_release);
  Peer& from = peer(receive.source);
  const Deadline now = Clock::now();
  from.helps = true;
  from.helps_until = now + kForHelp;
  average(from.taking, now - start, bytes);
  ask_for_help(receive);
  return true;
}

// Without its help. False where nothing was copied.
bool ShmMessages::copy(Open& receive) {
  const Stores stores = stores_for(receive.bytes);
  if (!receive.is_shared) {
    const std::size_t bytes = std::min(kCopyBytes, receive.bytes - receive.copied);
    const std::byte* const from =
        receive.from == Kind::kInArena
            ? boards_->arena().at(receive.place)
            : reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(receive.place));
    copy_with(stores, receive.out + receive.copied, from + receive.copied, bytes);
    receive.copied += bytes;
    return true;
  }
  Peer& from = peer(receive.source);
  const Deadline start = Clock::now();
  if (from.helps && start < from.helps_until) return false;
  from.helps = false;
  // Ever more at once, while it is seen not to help.
  const std::uint32_t parts = std::clamp(receive.pulled, 1U, kMostPulled);
  const std::size_t begin = lent_at(receive.lent).claim(receive.bytes, parts) * LentMessage::kPart;
  if (begin >= receive.bytes && receive.bytes > 0) return false;
  receive.pulled += parts;
  const std::size_t bytes = std::min(parts * LentMessage::kPart, receive.bytes - begin);
  const Status read = shm::read_process(process_of(receive.source), receive.place + begin,
                                        {receive.out + begin, bytes});
  if (read.code() == Code::kPeerLost) return false;  // of which the engine will hear
  if (!read.ok()) {
    receive.failure =
        read.with_context(format("messages in shared memory: rank %d", job_rank(receive.source)));
  }
  receive.copied += bytes;
  average(from.pulling, Clock::now() - start, bytes);
  from.pulled += parts;
  ask_for_help(receive);
  return true;
}

// Says how many parts its sender may stage: all, or none where help costs more than it saves, but
// for one now and then, to see whether that is still so.
void ShmMessages::ask_for_help(Open& receive) {
  Peer& from = peer(receive.source);
  std::uint32_t wanted = 0;
  // What this rank stages for others takes its time too.
  if (from.taking == 0 || from.pulling == 0 || from.taking + staging_ < from.pulling) {
    wanted = std::numeric_limits<std::uint32_t>::max();
  } else {
    from.helps = false;
    wanted = receive.taken;
    if (from.pulled >= kPulledBetween) ++wanted;
  }
  if (wanted > receive.taken) from.pulled = 0;
  if (wanted == receive.wanted) return;
  receive.wanted = wanted;
  lent_at(receive.lent).wanted.store(wanted, std::memory_order_release);
}

pid_t ShmMessages::process_of(int rank) const {
  return static_cast<pid_t>(
      boards_->processes()[static_cast<std::size_t>(places_[static_cast<std::size_t>(rank)])]);
}

// Puts what waits into the rings, and ends what was received.
bool ShmMessages::push_sends() {
  if (sends_.empty()) return false;
  for (Peer& each : peers_) each.held = false;
  const auto over = [this](Open* send) {
    if (!send->in_ring) {
      Peer& to = peer(send->peer);
      if (to.held || !send->failure.ok()) return false;
      to.held = !write(*send);
      if (to.held) return false;
      --to.unsent;
    }
    if (send->in_ring && !is_done(*send)) return false;
    if (send->in_ring) lent_.push_back(send->lent);
    end(*send);
    return true;
  };
  // The words of those behind are most often not there yet, and a look takes them from who writes
  // them: so all have their turn now and then.
  const bool all = ++pushes_ % kLooksAtFirst == 0;
  const auto end = all ? sends_.end() : sends_.begin() + std::min(kFirstSends, std::ssize(sends_));
  const auto left = std::remove_if(sends_.begin(), end, over);
  const bool moved = left != end;
  sends_.erase(left, end);
  return moved;
}

// As it is, where there is room for that; else lent.
bool ShmMessages::write(Open& send) {
  MessageWriter& out = peer(send.peer).out;
  MessageWriter::Entry entry{.tag = send.tag, .dtype = send.dtype, .data = {send.in, send.bytes}};
  const bool is_short = send.bytes <= MessageRing::kMostInline && !out.has_untaken(kMostUntaken);
  bool written = is_short && out.write(entry);
  if (!written && (!is_short || send.bytes > kMostWaiting)) {
    auto lent = take_lent();
    if (!lent.has_value()) {
      send.failure = lent.error().with_context("messages in shared memory");
      return false;
    }
    const auto offset = boards_->arena().offset_of(send.in, send.bytes);
    const MessageRing::Lent its{
        .bytes = send.bytes,
        .place = offset ? *offset : reinterpret_cast<std::uintptr_t>(send.in),
        .words = send.lent = lent.value()};
    entry.data = std::as_bytes(std::span(&its, 1));
    entry.kind = send.from = offset ? Kind::kInArena : Kind::kInProcess;
    send.all_claimed = false;
    written = send.in_ring = out.write(entry);
    if (!written) lent_.push_back(send.lent);
  }
  if (written) note_written(send.peer);
  return written;
}

// A part, of the first lent message whose receiver copies, into the stage.
bool ShmMessages::stage_next() {
  int looked = 0;
  for (Open* const send : sends_) {
    if (send->all_claimed) continue;
    if (looked++ == kFirstSends) return false;
    if (!may_stage(*send)) continue;
    if (stage_ == 0) {
      const auto stage = boards_->arena().take(sizeof(MessageStage));
      if (!stage.has_value()) return false;
      stage_ = stage.value();
    }
    MessageStage& stage = stage_at(stage_);
    const std::uint32_t slot = next_slot_++ % LentMessage::kSlots;
    if (stage.slots[slot].full.load(std::memory_order_acquire) != 0) return false;
    LentMessage& lent = lent_at(send->lent);
    const std::size_t begin = lent.claim(send->bytes, 1) * LentMessage::kPart;
    send->all_claimed = begin + LentMessage::kPart >= send->bytes;
    if (begin >= send->bytes) continue;
    const std::size_t bytes = std::min(LentMessage::kPart, send->bytes - begin);
    const Deadline start = Clock::now();
    std::memcpy(stage.bytes[slot], send->in + begin, bytes);
    average(staging_, Clock::now() - start, bytes);
    stage.slots[slot].part = static_cast<std::uint32_t>(begin / LentMessage::kPart);
    stage.slots[slot].full.store(1, std::memory_order_relaxed);
    const std::uint32_t staged = lent.staged.load(std::memory_order_relaxed);
    if (staged == 0) lent.stage = stage_;  // once: the reader may be looking
    lent.slots[staged % LentMessage::kSlots] = static_cast<std::uint8_t>(slot);
    lent.staged.store(staged + 1, std::memory_order_release);
    note_written(send->peer);
    return true;
  }
  return false;
}

// Whether parts of it may go into the stage.
bool ShmMessages::may_stage(const Open& send) const {
  if (!send.in_ring || send.from != Kind::kInProcess || send.all_claimed) return false;
  const LentMessage& lent = lent_at(send.lent);
  return lent.staged.load(std::memory_order_relaxed) < lent.wanted.load(std::memory_order_acquire);
}

Result<std::uint64_t> ShmMessages::take_lent() {
  if (lent_.empty()) {
    GW_ASSIGN(const std::uint64_t page, boards_->arena().take(kLentPage));
    lent_pages_.push_back(page);
    for (std::size_t at = 0; at < kLentPage; at += sizeof(LentMessage)) {
      lent_.push_back(page + at);
    }
  }
  const std::uint64_t lent = lent_.back();
  lent_.pop_back();
  new (&lent_at(lent)) LentMessage{};
  return lent;
}

// The receiver has it, as a lent message.
bool ShmMessages::is_done(const Open& send) const {
  return lent_at(send.lent).done.load(std::memory_order_acquire) != 0;
}

void ShmMessages::end(Open& one) {
  if (one.kind == OpKind::kSend) count(one.bytes);
  one.ended.store(true, std::memory_order_release);
  if (!one.handed) one.next_ended = std::exchange(ended_, &one);  // else the engine tells
}

// Of one writer, which has the lock.
void ShmMessages::count(std::size_t bytes) {
  bytes_->store(bytes_->load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
}

void ShmMessages::note_ring(int rank) {
  if (!std::exchange(peer(rank).rings, true)) to_ring_.push_back(rank);
}

// Rings the peer if it is known to sleep. Without a barrier, which would wait until it has what was
// written, this may miss that it lies down just now: ring_peers() looks again.
void ShmMessages::note_written(int rank) {
  bell(rank).ring_if_asleep();
  note_ring(rank);
}

void ShmMessages::ring_peers() {
  if (to_ring_.empty()) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const int p : to_ring_) {
    peer(p).rings = false;
    bell(p).ring_if_asleep();
  }
  to_ring_.clear();
}

// Whether a look would find something for it.
bool ShmMessages::is_ready(const Open& one) {
  if (!one.failure.ok()) return true;
  if (one.kind == OpKind::kSend) {
    if (one.in_ring) return is_done(one) || may_stage(one);
    return peer(one.peer).out.may_have_room() || closed_peer(one) >= 0;
  }
  if (one.copying) {
    return !is_broken() &&
           std::ranges::any_of(copies_, [&](const Open* each) { return has_part(*each); });
  }
  for (int p = 0; p < size(); ++p) {
    if (p == rank_ || (one.peer != kAnySource && one.peer != p)) continue;
    if (peer(p).in.peek() != nullptr) return true;
  }
  return closed_peer(one) >= 0;
}

// A job rank that has closed, without what it waits for; else -1.
int ShmMessages::closed_peer(const Open& one) {
  if (one.copying || is_broken()) return -1;
  int closed = -1;
  for (int p = 0; p < size(); ++p) {
    if (p == rank_ || (one.peer != kAnySource && one.peer != p)) continue;
    // Its last words come before it is gone.
    if (!is_gone(p)) return -1;
    if (one.kind == OpKind::kSend) {
      if (one.in_ring && is_done(one)) return -1;
    } else if (peer(p).in.peek() != nullptr) {
      return -1;
    }
    closed = p;
  }
  return closed < 0 ? closed : job_rank(closed);
}

std::vector<int> ShmMessages::waiting_for(const Open& one) const {
  const int awaited = one.source >= 0 ? one.source : one.peer;
  if (awaited != kAnySource) return {job_rank(awaited)};
  std::vector<int> ranks = *route_.group;
  std::erase(ranks, job_rank(rank_));
  std::ranges::sort(ranks);
  return ranks;
}

// Nobody looks at it any more, nor at its operand.
void ShmMessages::forget(Open& one) {
  if (one.ended) return;
  unpost(one);
  std::erase(copies_, &one);
  if (std::erase(sends_, &one) > 0 && !one.in_ring) --peer(one.peer).unsent;
}

void ShmMessages::give_up() {
  outbox(0).common.give_up();
  boards_->arena().retire();
  for (int p = 0; p < size(); ++p) {
    if (p != rank_) bell(p).ring_if_asleep();
  }
}

// Waiting, and handing over.

void ShmMessages::look() {
  const Look look(*this);
  (void)poll();
}

bool ShmMessages::wait_briefly(const WorkState& work, const std::optional<Deadline>& until) {
  const ShmLooks looks(waiting_, boards_->crowded(), kMessageLooks, kPauses);
  int moving = 0;
  int looked = 0;
  int idle = 0;
  do {
    bool moved = false;
    {
      const Look look(*this);
      moved = poll();
    }
    if (work.done()) return true;
    if (until && looked++ % kLooksBeforeClock == 0 && Clock::now() >= *until) return work.done();
    if (fate_->failed.load(std::memory_order_acquire)) break;
    if (moved) {
      idle = 0;
      ++moving;
    } else {
      looks.pause(idle++);
    }
  } while (idle < looks.most() && moving < kMostMovingLooks);
  submit(engine_.lock().get(),
         [&](const Open& one) { return one.batch ? one.batch.get() == &work : &one.own == &work; });
  return work.done();
}

// While a thread looks and messages move, the engine would only be in its way.
bool ShmMessages::hand_over(ProgressEngine& engine) {
  if (mutex_.is_owner_inside() && ++put_off_ < kMostVisits) return true;
  put_off_ = 0;
  bool attended = false;
  std::vector<OpenPtr> ready;
  {
    const Look look(*this, Look::By::kEngine);  // which rings
    ready = take_light([this](Open& one) {
      const int visits = one.visits++;
      const bool waits = moves_ == moves_before_ || one.deadline || !one.failure.ok();
      return visits > kMostVisits || (visits > 0 && waits);
    });
    moves_before_ = moves_;
    if (pool_.size() > kMostPooled) {
      next_in_pool_ = 0;
      std::erase_if(pool_, [](const OpenPtr& one) { return !one->busy && one.use_count() == 1; });
    }
    attended_ = std::ranges::any_of(pool_, [](const OpenPtr& one) { return is_light(*one); });
    attended = attended_;
  }
  for (const OpenPtr& one : ready) submit_one(&engine, one);
  return attended;
}

void ShmMessages::close(bool failed) {
  if (mark_.in_child()) return;
  submit(engine_.lock().get(), [](const Open&) { return true; });
  const Look look(*this);
  closes_ = !failed;
}

Result<int> ShmMessages::probe(int peer, int tag, Deadline until) {
  const OpCall call{.kind = OpKind::kRecv, .peer = peer, .tag = tag};
  OpOptions options;
  options.deadline = end_of_probe(until);
  OpenPtr one;
  bool attend = false;
  {
    const Look look(*this);
    one = open({call, options, {}}, nullptr);
    one->is_probe = true;
    post(*one);
    attend = !std::exchange(attended_, true);
  }
  if (attend) {
    if (const auto engine = engine_.lock()) engine->attend(weak_from_this());
  }
  Work work(std::shared_ptr<WorkState>(one, &one->own));
  const Status status = work.wait(until);
  if (one->own.done()) {
    GW_TRY(status);
    return one->own.source();
  }
  {
    const Look look(*this);
    if (!one->ended) {
      unpost(*one);
      end(*one);
    }
  }
  (void)work.wait();
  return one->own.source();
}

// Open, and not the engine's.
bool ShmMessages::is_light(const Open& one) {
  return one.busy.load(std::memory_order_relaxed) && !one.ended && !one.handed;
}

// What is open, is not the engine's and is chosen becomes operations of the engine.
template <typename Chosen>
void ShmMessages::submit(ProgressEngine* engine, const Chosen& chosen) {
  std::vector<OpenPtr> ready;
  {
    const Look look(*this, Look::By::kEngine);
    ready = take_light(chosen);
  }
  for (const OpenPtr& one : ready) submit_one(engine, one);
}

// Requires the lock.
template <typename Chosen>
std::vector<ShmMessages::OpenPtr> ShmMessages::take_light(const Chosen& chosen) {
  std::vector<OpenPtr> taken;
  for (const OpenPtr& one : pool_) {
    if (!is_light(*one) || !chosen(*one)) continue;
    one->handed = true;
    taken.push_back(one);
  }
  return taken;
}

// engine: null where it has gone.
void ShmMessages::submit_one(ProgressEngine* engine, const OpenPtr& one) {
  std::shared_ptr<WorkState> work = one->batch;
  if (!work) work = std::shared_ptr<WorkState>(one, &one->own);
  if (engine == nullptr) return work->finish({Code::kCancelled, "its communicator was destroyed"});
  auto operation = std::make_unique<Operation>(Operation{
      .signature = one->is_probe
                       ? Signature{.name = "probe"}
                       : signature_of(one->kind, one->dtype, ReduceOp::kSum, one->elems, one->peer),
      .algorithm = kShmAlgorithm,
      .collective = false,
      .queue = Queue::kPipeline,
      .execution = std::make_unique<Run>(shared_from_this(), one),
      .work = std::move(work),
      .bytes_sent = counted_});
  if (!one->deadline && one->peer >= 0) operation->peer = job_rank(one->peer);
  operation->deadline = one->deadline.value_or(deadline_in(deadline_seconds_));
  (void)engine->submit(std::move(operation));
}

}  // namespace gradwire
