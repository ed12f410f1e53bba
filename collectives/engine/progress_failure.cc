// How an engine's operations end when something fails, and how it hands its transport on.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>
#include <vector>

#include "collectives/engine/outcomes.h"
#include "collectives/engine/progress.h"
#include "collectives/engine/sender_search.h"
#include "collectives/failure/notes.h"
#include "collectives/failure/roll_call.h"
#include "collectives/failure/shrink.h"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;

// After a failure, for cancelled messages to settle. With the roll call before it less than the
// second that an operation may end late.
constexpr double kSettle = 0.3;

}  // namespace

void ProgressEngine::abort(const std::string& reason) {
  with_baton([&] {
    (void)accept();
    if (!failed_) fail(nullptr, Status(Code::kCancelled, reason));
  });
}

Result<ProgressEngine::Successor> ProgressEngine::shrink(const std::vector<int>& group,
                                                         std::uint32_t communicator,
                                                         Deadline deadline) {
  ShrinkCall call{group,    options_.left_behind,         communicator,       status(), deadline,
                  attempt_, options_.allow_lone_survivor, options_.take_token};
  if (call.failure.ok()) {
    return Status(Code::kInvalidArgument,
                  "shrink: nothing has failed (expected a failure, or abort(), first)");
  }
  std::ranges::sort(call.group);
  Result<Survivors> agreed = Status(Code::kUnsupported, "shrink: the transport is gone");
  std::unique_ptr<Transport> transport;
  with_baton([&] {
    if (!transport_) return;
    agreed = agree_and_rebuild(*transport_, call, recorder_);
    const std::lock_guard lock(mutex_);
    if (agreed.has_value()) transport = std::move(transport_);
  });
  if (!agreed.has_value()) return agreed.error();
  const Survivors& survivors = agreed.value();
  EngineOptions options = options_;
  options.generation = survivors.generation;
  options.left_behind = survivors.lost;
  Successor successor{ProgressEngine::make(std::move(transport), std::move(options)), group};
  std::erase_if(successor.group,
                [&](int rank) { return !std::ranges::binary_search(survivors.ranks, rank); });
  return successor;
}

// What other ranks' engines want to know, whatever this rank does; true if an operation has
// something to do now.
bool ProgressEngine::read_notes() {
  turns_since_notes_ = 0;
  bool heard_of_messages = false;
  for (const Note& note : transport_->take_notes()) {
    const auto heard = decode_note(note.bytes, size_);
    if (!heard) continue;
    if (heard->kind == EngineNote::Kind::kAsk) {
      answer(*transport_, note.from, *heard, recorder_, status());
    }
    // Somebody goes on without the lost, and cannot without this rank.
    if (heard->kind == EngineNote::Kind::kPropose && !failed_ && !is_old(*heard)) {
      fail(nullptr, learn_losses(note.from, *heard));
    }
    heard_of_messages = read_search(note.from, *heard) || heard_of_messages;
  }
  return heard_of_messages;
}

// True for an answer.
bool ProgressEngine::read_search(int from, const EngineNote& note) {
  const bool asks = note.kind == EngineNote::Kind::kSearch;
  if (!asks && note.kind != EngineNote::Kind::kSent) return false;
  if (failed_ || note.generation != options_.generation) return false;
  std::shared_ptr<PairLedger> ledger;
  {
    const std::lock_guard lock(mutex_);
    const auto found = ledgers_.find(note.communicator);
    if (found != ledgers_.end()) ledger = found->second;
  }
  if (ledger == nullptr) return false;
  if (!asks) {
    ledger->hear(from, tag_of(note), count_of(note));
    return true;
  }
  if (const auto count = ledger->want(from, tag_of(note))) {
    transport_->tell(from, encode(note_about(EngineNote::Kind::kSent, note.communicator,
                                             options_.generation, tag_of(note), *count)));
  }
  return false;
}

// Once this rank has left, nobody answers a peer that looks for what it has sent.
void ProgressEngine::tell_last_counts() {
  for (const auto& [communicator, ledger] : ledgers_) {
    for (const PairLedger::Count& count : ledger->untold()) {
      transport_->tell(count.job_rank,
                       encode(note_about(EngineNote::Kind::kSent, communicator, options_.generation,
                                         count.tag, count.sent)));
    }
  }
}

// The proposal may be here before the verdict that led to it, which its sender has told by another
// way or has from elsewhere. It names the same ranks, and those that were left behind before.
Status ProgressEngine::learn_losses(int from, const EngineNote& proposal) {
  const std::string who = "rank " + std::to_string(from);
  std::vector<int> lost;
  std::ranges::set_difference(proposal.lost, options_.left_behind, std::back_inserter(lost));
  if (lost.empty() || std::ranges::binary_search(lost, rank_)) {
    return {Code::kPeerLost, who + " has failed and shrinks"};
  }
  for (const int rank : lost) {
    transport_->announce(
        {.rank = rank,
         .reason = "reported by " + who + ": continues without it",
         .certain = std::ranges::find(proposal.certain, rank) != proposal.certain.end(),
         .cause = LossCause::kLeftBehind,
         .reporter = from});
  }
  return {Code::kPeerLost,
          ranks_text(lost) + " lost in an operation of " + who + ", which continues without"};
}

// A proposal told again that led to this engine.
bool ProgressEngine::is_old(const EngineNote& proposal) const {
  return proposal.generation < options_.generation &&
         std::ranges::includes(options_.left_behind, proposal.lost);
}

// Ends every operation, for good. The verdict goes out first: others may be waiting for this rank.
void ProgressEngine::fail(Operation* culprit, Status cause) {
  if (failed_ && active_.empty()) return;
  failed_ = true;
  if (culprit == nullptr && !active_.empty()) culprit = active_.front().get();
  const Failure failure = investigate(*transport_, culprit, std::move(cause), recorder_,
                                      {.by_token = static_cast<bool>(options_.take_token),
                                       .allow_lone = options_.allow_lone_survivor});
  const Deadline now = Clock::now();
  std::vector<Status> outcomes;
  Status first = outcome_between_operations(failure);
  for (const auto& operation : active_) {
    operation->waited_for = operation->execution->waiting_for(*transport_);
    outcomes.push_back(outcome_of(*operation, failure, *transport_, now));
    if (operation.get() == culprit) first = outcomes.back();
  }
  for (const LostPeer& verdict : verdicts_of(culprit, failure, *transport_)) {
    transport_->announce(verdict);
  }
  for (auto& operation : active_) operation->execution->cancel(*transport_);
  // The operands must not be touched once their owners have them back.
  bool settled = settle_all();
  if (!settled && transport_->sever()) settled = settle_all();
  {
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = first;
    has_failed_ = true;
    if (!settled) transport_.reset();
  }
  for (std::size_t i = 0; i < active_.size(); ++i) {
    if (settled) active_[i]->execution->release(pool_);
    end(*active_[i], outcomes[i]);
  }
  active_.clear();
  write_flight_record(failure, first);
}

void ProgressEngine::write_flight_record(const Failure& failure, const Status& status) const {
  if (options_.flight_folder.empty()) return;
  FlightFailure head{.rank = rank_,
                     .size = size_,
                     .generation = options_.generation,
                     .status = status,
                     .silent = failure.call.silent,
                     .absent = failure.call.absent};
  for (const LostPeer& lost : failure.lost) head.lost.push_back(lost.rank);
  // No operation is left to tell.
  const Status written = write_flight(options_.flight_folder, head, recorder_.records());
  if (!written.ok() && options_.warn) options_.warn(written.message());
}

bool ProgressEngine::settle_all() {
  const Deadline until = deadline_in(kSettle);
  while (true) {
    const Result<int> progressed = transport_->progress();
    bool settled = true;
    for (auto& operation : active_) {
      settled = operation->execution->settled(*transport_) && settled;
    }
    if (settled) return true;
    const Deadline now = Clock::now();
    if (now >= until || !progressed.has_value()) return false;
    if (!transport_->wait(std::min(until, now + std::chrono::milliseconds(5))).ok()) return false;
  }
}

}  // namespace gradwire
