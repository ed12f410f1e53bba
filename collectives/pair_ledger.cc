#include "collectives/pair_ledger.h"

#include <algorithm>

namespace gradwire {

PairLedger::Sent PairLedger::take_send(int peer, int tag) {
  const std::lock_guard lock(mutex_);
  Pair& pair = of(peer, tag);
  return {pair.sent++, pair.wanted};
}

std::uint64_t PairLedger::take_recv(int peer, int tag) {
  const std::lock_guard lock(mutex_);
  return of(peer, tag).taken++;
}

std::optional<std::uint64_t> PairLedger::want(int job_rank, int tag) {
  const int peer = group_rank(job_rank);
  if (peer < 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  Pair& pair = of(peer, tag);
  pair.wanted = true;
  return pair.sent;
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

std::optional<std::uint64_t> PairLedger::claim(int peer, int tag) {
  const std::lock_guard lock(mutex_);
  Pair& pair = of(peer, tag);
  if (pair.heard <= pair.taken) return std::nullopt;
  return pair.taken++;
}

int PairLedger::group_rank(int job_rank) const {
  const auto found = std::ranges::find(*group_, job_rank);
  return found == group_->end() ? -1 : static_cast<int>(found - group_->begin());
}

}  // namespace gradwire
