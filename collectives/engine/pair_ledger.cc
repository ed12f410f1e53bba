#include "collectives/engine/pair_ledger.h"

#include <algorithm>

namespace gradwire {
namespace {

// Messages without a tag are told apart by their numbers.
PostingTurn turn_of(int tag, const std::shared_ptr<PostingOrder>& order, std::uint64_t number) {
  return {tag == 0 ? nullptr : order, number};
}

}  // namespace

PairLedger::Message PairLedger::take_send(int peer, int tag) {
  const std::lock_guard lock(mutex_);
  Pair& pair = of(peer, tag);
  const std::uint64_t number = pair.sent++;
  if (pair.wanted) pair.told = pair.sent;
  return {number, turn_of(tag, pair.sending, number), pair.wanted};
}

PairLedger::Message PairLedger::take_recv(int peer, int tag) {
  const std::lock_guard lock(mutex_);
  Pair& pair = of(peer, tag);
  const std::uint64_t number = pair.taken++;
  return {number, turn_of(tag, pair.receiving, number)};
}

std::optional<std::uint64_t> PairLedger::want(int job_rank, int tag) {
  const int peer = group_rank(job_rank);
  if (peer < 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  Pair& pair = of(peer, tag);
  pair.wanted = true;
  return pair.told = pair.sent;
}

std::vector<PairLedger::Count> PairLedger::untold() const {
  const std::lock_guard lock(mutex_);
  std::vector<Count> counts;
  for (const auto& [of, pair] : pairs_) {
    const auto& [peer, tag] = of;
    if (pair.sent == pair.told) continue;
    counts.push_back({(*group_)[static_cast<std::size_t>(peer)], tag, pair.sent});
  }
  return counts;
}

void PairLedger::hear(int job_rank, int tag, std::uint64_t count) {
  const int peer = group_rank(job_rank);
  if (peer < 0) return;
  const std::lock_guard lock(mutex_);
  Pair& pair = of(peer, tag);
  pair.heard = std::max(pair.heard, count);
}

bool PairLedger::waits(int peer, int tag) const {
  const std::lock_guard lock(mutex_);
  const auto pair = pairs_.find({peer, tag});
  return pair != pairs_.end() && pair->second.heard > pair->second.taken;
}

std::optional<PairLedger::Message> PairLedger::claim(int peer, int tag) {
  const std::lock_guard lock(mutex_);
  Pair& pair = of(peer, tag);
  if (pair.heard <= pair.taken) return std::nullopt;
  const std::uint64_t number = pair.taken++;
  return Message{number, turn_of(tag, pair.receiving, number)};
}

int PairLedger::group_rank(int job_rank) const {
  const auto found = std::ranges::find(*group_, job_rank);
  return found == group_->end() ? -1 : static_cast<int>(found - group_->begin());
}

}  // namespace gradwire
