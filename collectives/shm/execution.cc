#include "collectives/shm/execution.h"

#include <algorithm>
#include <string>
#include <utility>

#include "collectives/failure/flight_recorder.h"
#include "collectives/schedules/op_traits.h"

namespace gradwire {
namespace {

constexpr std::uint32_t kDirectDone = 1;

// "all_reduce of 8 f32 sum"
std::string text_of(const ShmNotice& notice) {
  return to_string(signature_of(static_cast<OpKind>(notice.kind), static_cast<DType>(notice.dtype),
                                static_cast<ReduceOp>(notice.op), notice.elems, notice.root));
}

bool agree(const ShmNotice& a, const ShmNotice& b) {
  return a.number.load(std::memory_order_relaxed) == b.number.load(std::memory_order_relaxed) &&
         a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.root == b.root &&
         a.elems == b.elems && a.lengths == b.lengths;
}

}  // namespace

const ShmMoves& shm_moves_of(OpKind kind) {
  const OpTraits traits = traits_of(kind);
  if (!traits.reduces) return shm_movements(traits.base);
  const bool fold_own = traits.base == OpKind::kReduceScatter || kind == OpKind::kExclusiveScan;
  return fold_own ? shm_own_fold() : shm_all_reduce();
}

ShmExecution::ShmExecution(ShmChannel& channel, const ShmMoves& moves, ShmCall call,
                           std::uint64_t n)
    : channel_(&channel), moves_(&moves), call_(std::move(call)), n_(n) {}

void ShmExecution::hand_over(std::shared_ptr<ShmChannel> channel, Route route) {
  kept_ = std::move(channel);
  route_ = std::move(route);
  handed_over_ = true;
  channel_->handed_over.fetch_add(1, std::memory_order_relaxed);
  channel_->boards().under_way().fetch_add(1, std::memory_order_relaxed);
}

void ShmExecution::release(ScratchPool&) {
  if (!handed_over_) return;
  channel_->handed_over.fetch_sub(1, std::memory_order_release);
  channel_->boards().under_way().fetch_sub(1, std::memory_order_relaxed);
  handed_over_ = false;
}

// Whether rank q is as far as this rank needs it to be.
bool ShmExecution::has(int q) const {
  switch (phase_) {
    case Phase::kEnter: return n_ <= 1 || channel_->arrived(q, n_ - 1);
    case Phase::kGather: return !awaits(q) || channel_->arrived(q, n_);
    case Phase::kLeave: return channel_->reached(q, n_, kDirectDone);
    case Phase::kSlots: return channel_->reached(q, wanted_n_, wanted_step_);
    case Phase::kDirect: return q != unread_;
    case Phase::kDone: return true;
  }
  return true;
}

bool ShmExecution::met() const {
  if (phase_ == Phase::kEnter && channel_->turn != n_) return false;
  while (met_ < channel_->size() && has(met_)) ++met_;
  return met_ == channel_->size() && !channel_->broken();
}

bool ShmExecution::ready() const {
  if (phase_ == Phase::kDone) return false;
  return met() || closed_too_early() >= 0 || strange_elsewhere() >= 0;
}

// The group rank. A rank that is seen to have closed is looked at once more: that was its last
// word.
int ShmExecution::closed_too_early() const {
  if (channel_->broken()) return -1;
  for (int q = 0; q < channel_->size(); ++q) {
    if (!has(q) && channel_->gone(q) && !has(q)) return q;
  }
  return -1;
}

// The group rank that is in this operation, but in another queue.
int ShmExecution::strange_elsewhere() const {
  if (phase_ != Phase::kGather) return -1;
  for (int q = 0; q < channel_->size(); ++q) {
    if (!has(q) && channel_->elsewhere(q, call_.number) != nullptr) return q;
  }
  return -1;
}

int ShmExecution::closed_peer() const {
  const int q = closed_too_early();
  return q < 0 ? q : job_rank(q);
}

std::vector<int> ShmExecution::waiting_for(const Transport&) const {
  std::vector<int> ranks;
  for (int q = 0; q < channel_->size(); ++q) {
    if (q == stranger_ || (stranger_ < 0 && !has(q))) {
      ranks.push_back((*route_.group)[static_cast<std::size_t>(q)]);
    }
  }
  std::ranges::sort(ranks);
  return ranks;
}

void ShmExecution::go_on(Phase phase) {
  phase_ = phase;
  met_ = 0;
}

// A turn of the engine costs a microsecond: an action on each of three slots fits in one.
Result<bool> ShmExecution::advance(Transport&, ScratchPool&) {
  constexpr int kStepsOfTurn = 3;
  bool moved = false;
  for (int steps = 0; steps < kStepsOfTurn; ++steps) {
    GW_ASSIGN(const bool stepped, step());
    if (!stepped) break;
    moved = true;
  }
  return moved;
}

Result<bool> ShmExecution::step() {
  if (!met()) {
    if (const int strange = strange_elsewhere(); strange >= 0) {
      return mismatch(strange, *channel_->elsewhere(strange, call_.number));
    }
    const int closed = closed_peer();
    if (closed < 0) return false;
    return Status(Code::kPeerLost, "rank " + std::to_string(closed) + " closed");
  }
  switch (phase_) {
    case Phase::kEnter: enter(); break;
    case Phase::kGather: GW_TRY(gather()); break;
    case Phase::kDirect: work_directly(); break;
    case Phase::kLeave: finish(); break;
    case Phase::kSlots: work_in_slots(); break;
    case Phase::kDone: return false;
  }
  return true;
}

// Equal on all ranks, since it changes only where all have seen all notices.
ShmReach& ShmExecution::reach_before() {
  return channel_->reach_before[static_cast<std::size_t>(call_.kind)];
}

void ShmExecution::enter() {
  const int size = channel_->size();
  small_ = moves_->in_bytes(call_, size) <= moves_->small_limit(size, reach_before());
  if (small_) awaited_ = moves_->awaited(call_);
  if (small_) moves_->put_small(place(), channel_->small(channel_->rank(), n_));
  const auto offset = [&](const std::byte* data, std::size_t bytes) {
    return channel_->arena().offset_of(data, bytes).value_or(ShmNotice::kPrivate);
  };
  // In place, rows that others have yet to read would be overwritten.
  const bool hidden = (call_.kind == OpKind::kAllToAll || call_.kind == OpKind::kExclusiveScan) &&
                      call_.in == call_.out;
  ShmTensors tensors{.out = offset(call_.out, moves_->out_bytes(call_, size))};
  if (!hidden) {
    tensors.in = offset(call_.in, moves_->in_bytes(call_, size));
    if (channel_->reads_processes()) tensors.address = reinterpret_cast<std::uintptr_t>(call_.in);
  }
  channel_->enter(n_, call_, tensors, root_alone() && channel_->rank() == call_.root);
  go_on(Phase::kGather);
}

Status ShmExecution::check_notices() {
  const ShmNotice& own = channel_->notice(channel_->rank(), n_);
  for (int q = 0; q < channel_->size(); ++q) {
    if (!awaits(q)) continue;
    const ShmNotice& theirs = channel_->notice(q, n_);
    if (agree(own, theirs)) continue;
    return mismatch(q, theirs);
  }
  return {};
}

Status ShmExecution::mismatch(int q, const ShmNotice& theirs) {
  stranger_ = q;
  const ShmNotice& own = channel_->notice(channel_->rank(), n_);
  const std::uint64_t number = theirs.number.load(std::memory_order_relaxed);
  const auto text = [&](int rank, const ShmNotice& notice, std::uint64_t its) {
    return "rank " + std::to_string(job_rank(rank)) + " runs " + text_of(notice) +
           (number == call_.number ? "" : " as operation " + std::to_string(its));
  };
  return {Code::kRankMismatch,
          text(q, theirs, number) + ", " + text(channel_->rank(), own, call_.number)};
}

Status ShmExecution::gather() {
  GW_TRY(check_notices());
  // Equal on all ranks: all have seen all notices of this operation.
  const bool seen_by_all = awaited_ == ShmMoves::Awaited::kAll;
  const ShmReach reach = seen_by_all ? moves_->reach(place()) : ShmReach::kBoard;
  if (seen_by_all) reach_before() = reach;
  if (small_) {
    // The next operation is likely to be like this one.
    channel_->expect_small(n_ + 1, moves_->in_bytes(call_, channel_->size()));
    moves_->take_small(place());
    finish();
  } else if (reach != ShmReach::kBoard) {
    parts_ = moves_->direct_parts(place());
    go_on(Phase::kDirect);
  } else {
    parts_ = moves_->slot_parts(place());
    go_on(Phase::kSlots);
    skip_empty_actions();
  }
  return {};
}

void ShmExecution::work_directly() {
  if (action_ < parts_) {
    ShmPlace here = place();
    here.unread = &unread_;
    moves_->direct(here, action_);
    met_ = 0;
    if (unread_ >= 0) return;
    ++action_;
  }
  if (action_ < parts_) return;
  finish_stores();
  channel_->publish(n_, kDirectDone);
  go_on(Phase::kLeave);
}

void ShmExecution::work_in_slots() {
  const std::int64_t part = part_of_action(action_);
  const std::int64_t kind = action_ % kinds();
  if (kind == 0) {
    moves_->put(place(), part);
  } else if (kind == lag()) {
    moves_->take(place(), part);
  } else {
    moves_->combine(place(), part);
  }
  channel_->publish(n_, step_of(action_));
  ++action_;
  skip_empty_actions();
}

// To the next action that there is, and to what it has to wait for.
void ShmExecution::skip_empty_actions() {
  const std::int64_t end = action_of(parts_ - 1, lag()) + 1;
  const auto empty = [&](std::int64_t action) {
    const std::int64_t part = part_of_action(action);
    return part < 0 || part >= parts_;
  };
  while (action_ < end && empty(action_)) ++action_;
  met_ = 0;
  if (action_ >= end || parts_ == 0) {
    finish_stores();
    channel_->publish(n_, ShmChannel::kLastStep);
    channel_->last_in_slots = n_;
    return finish();
  }
  const std::int64_t part = part_of_action(action_);
  const std::int64_t kind = action_ % kinds();
  wanted_n_ = n_;
  if (kind > 0) {
    wanted_step_ = step_of(action_of(part, kind - 1));
  } else if (part >= ShmChannel::kSlots) {
    wanted_step_ = step_of(action_of(part - ShmChannel::kSlots, lag()));
  } else {
    wanted_n_ = channel_->last_in_slots;
    wanted_step_ = wanted_n_ == 0 ? 0 : ShmChannel::kLastStep;
  }
}

void ShmExecution::finish() {
  bytes_sent_ = moves_->sent(place(), small_);
  channel_->boards().total_bytes().fetch_add(bytes_sent_, std::memory_order_relaxed);
  channel_->turn = n_ + 1;
  go_on(Phase::kDone);
}

}  // namespace gradwire
