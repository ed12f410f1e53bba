#include "comm/liveness.h"

#include <numeric>

namespace gradwire::comm {

Liveness::Liveness(int size, int rank, Duration interval, Duration patience, Deadline now)
    : interval_(interval),
      patience_(patience),
      now_(now),
      next_beat_(now),
      last_heard_(static_cast<std::size_t>(size), now),
      watched_(static_cast<std::size_t>(size)),
      nobody_before_(now + patience) {
  std::iota(watched_.begin(), watched_.end(), 0);
  last_heard_[index(rank)].reset();
}

void Liveness::tick(Deadline now) {
  const Duration passed = now - now_;
  now_ = now;
  if (passed <= interval_) return;
  for (const int rank : watched_) {
    if (watched(rank)) *last_heard_[index(rank)] += passed;
  }
}

bool Liveness::beat_due(Deadline now) {
  if (now < next_beat_) return false;
  next_beat_ = now + interval_;
  return true;
}

void Liveness::watch(std::span<const int> ranks) {
  std::vector<std::optional<Deadline>> heard;
  for (const int rank : ranks) heard.push_back(last_heard_[index(rank)]);
  for (const int rank : watched_) last_heard_[index(rank)].reset();
  watched_.assign(ranks.begin(), ranks.end());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    last_heard_[index(ranks[i])] = heard[i].value_or(now_);
  }
}

void Liveness::heard(int rank) {
  auto& heard = last_heard_[index(rank)];
  if (heard) heard = now_;
}

void Liveness::forget(int rank) { last_heard_[index(rank)].reset(); }

std::optional<int> Liveness::silent() const {
  std::optional<int> worst;
  if (now_ <= nobody_before_) return worst;
  nobody_before_ = now_ + patience_;
  for (const int rank : watched_) {
    if (!watched(rank)) continue;
    nobody_before_ = std::min(nobody_before_, *last_heard_[index(rank)] + patience_);
    if (silence_of(rank) <= patience_) continue;
    if (!worst || silence_of(rank) > silence_of(*worst)) worst = rank;
  }
  return worst;
}

Liveness::Duration Liveness::silence_of(int rank) const {
  const auto& heard = last_heard_[index(rank)];
  return heard ? now_ - *heard : Duration::zero();
}

}  // namespace gradwire::comm
