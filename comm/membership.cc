#include "comm/membership.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace gradwire::comm {
namespace {

// Between a connection's failure and the loss of its rank: a goodbye or a verdict that was sent
// before may still be read. Far below any deadline.
constexpr auto kSuspicion = std::chrono::milliseconds(150);
constexpr auto kLook = std::chrono::milliseconds(20);

double seconds(Deadline::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

Membership::Membership(Carrier& carrier, const MembershipOptions& options, Deadline now)
    : carrier_(carrier),
      options_(options),
      peers_(static_cast<std::size_t>(options.size)),
      liveness_(options.size, options.rank, options.heartbeat, options.patience, now) {}

void Membership::send(int rank, Control message) {
  if (rank == options_.rank || !live(rank)) return;
  message.from = options_.rank;
  message.epoch = options_.epoch;
  carrier_.send(rank, message);
}

void Membership::tend(Deadline now) {
  liveness_.tick(now);
  if (liveness_.beat_due(now)) {
    for (int rank = 0; rank < options_.size; ++rank) send(rank, {});
  }
  if (now < next_look_) return;
  next_look_ = now + kLook;
  look_for_losses(now);
}

Deadline Membership::next_event(Deadline now) const {
  const Deadline look = now + (suspects_ > 0 ? kLook : options_.heartbeat / 2);
  return std::min(look, std::max(now, liveness_.next_beat()));
}

void Membership::receive(const Control& message, Deadline now) {
  Peer& peer = at(message.from);
  if (peer.state == State::kLost) return;  // what a rank says that was given up is too late
  liveness_.tick(now);
  liveness_.heard(message.from);
  switch (message.kind) {
    case Control::Kind::kVerdict: return lose(message.culprit, message.text, message.reporter);
    case Control::Kind::kGoodbye:
      if (message.flag) lose(message.culprit, message.text, message.reporter);
      if (peer.state != State::kLive) return;
      send(message.from, {.kind = Control::Kind::kFarewell});
      peer.goodbye = true;
      liveness_.forget(message.from);
      return close_if_done(message.from);
    case Control::Kind::kFarewell: peer.farewell = true; return;
    case Control::Kind::kHello:
    case Control::Kind::kHeartbeat:
    case Control::Kind::kTaken:
    case Control::Kind::kWithdraw: return;
  }
}

void Membership::suspect(int rank, const std::string& reason, Deadline now) {
  Peer& peer = at(rank);
  if (peer.suspect_since || peer.state != State::kLive || peer.goodbye) return;
  peer.suspect_since = now;
  peer.reason = reason;
  ++suspects_;
}

void Membership::condemn(int rank, const std::string& reason) { lose(rank, reason, options_.rank); }

void Membership::data_over(int rank, const std::string& reason, Deadline now) {
  at(rank).over = true;
  if (at(rank).goodbye) {
    close_if_done(rank);
  } else {
    suspect(rank, reason, now);
  }
}

void Membership::close_if_done(int rank) {
  Peer& peer = at(rank);
  if (!peer.goodbye || !peer.over || peer.state != State::kLive) return;
  if (peer.suspect_since) --suspects_;
  peer.suspect_since.reset();
  peer.state = State::kClosed;
  peer.reason = "closed";
  changed_ = true;
}

// The first culprit stays, and is passed on once, so that it reaches everybody even if the rank
// that saw it first goes at once.
void Membership::blame(int culprit, const std::string& reason, int reporter) {
  if (lost_) return;
  lost_ = LostPeer{culprit, reporter == options_.rank
                                ? reason
                                : format("reported by rank %d: %s", reporter, reason.c_str())};
  verdict_ = Control{
      .kind = Control::Kind::kVerdict, .culprit = culprit, .reporter = reporter, .text = reason};
  options_.log(LogLevel::kWarn, format("rank %d lost: %s", culprit, lost_->reason.c_str()));
  for (int rank = 0; rank < options_.size; ++rank) send(rank, *verdict_);
}

void Membership::lose(int rank, const std::string& reason, int reporter) {
  blame(rank, reason, reporter);
  if (rank == options_.rank) {  // the others have given this rank up: it reaches nobody any more
    for (int other = 0; other < options_.size; ++other) {
      if (!live(other) || other == options_.rank) continue;
      at(other).state = State::kLost;
      at(other).reason = format("it gave this rank up (%s)", lost_->reason.c_str());
      carrier_.cut(other);
    }
    changed_ = true;
    return;
  }
  Peer& peer = at(rank);
  if (peer.state == State::kLost) return;
  if (peer.suspect_since) --suspects_;
  peer.suspect_since.reset();
  peer.state = State::kLost;
  peer.reason = reporter == options_.rank
                    ? reason
                    : format("reported by rank %d: %s", reporter, reason.c_str());
  liveness_.forget(rank);
  carrier_.cut(rank);
  changed_ = true;
}

void Membership::look_for_losses(Deadline now) {
  for (int rank = 0; rank < options_.size; ++rank) {
    const Peer& peer = at(rank);
    if (peer.state == State::kLive && !peer.goodbye && peer.suspect_since &&
        now - *peer.suspect_since >= kSuspicion) {
      lose(rank, std::string(peer.reason), options_.rank);
    }
  }
  while (const auto silent = liveness_.silent()) {  // ends: lose() forgets the rank
    lose(*silent, format("no heartbeat for %.1f s", seconds(liveness_.silence_of(*silent))),
         options_.rank);
  }
}

void Membership::need(int rank) { blame(rank, at(rank).reason, options_.rank); }

void Membership::announce(const LostPeer& culprit) {
  if (culprit.rank < 0 || culprit.rank >= options_.size) return;
  // This rank's own failure: the others hear why it goes; it still reaches them.
  if (culprit.rank == options_.rank) return blame(culprit.rank, culprit.reason, options_.rank);
  lose(culprit.rank, culprit.reason, options_.rank);
}

Status Membership::why(int rank) const {
  const Peer& peer = at(rank);
  if (peer.state == State::kClosed) return {Code::kPeerLost, format("rank %d closed", rank)};
  return {Code::kPeerLost, format("rank %d lost: %s", rank, peer.reason.c_str())};
}

void Membership::say_goodbye() {
  Control goodbye = verdict_.value_or(Control{});
  goodbye.kind = Control::Kind::kGoodbye;
  goodbye.flag = verdict_.has_value();
  for (int rank = 0; rank < options_.size; ++rank) send(rank, goodbye);
}

bool Membership::awaits_farewell() const {
  for (int rank = 0; rank < options_.size; ++rank) {
    const Peer& peer = at(rank);
    if (rank != options_.rank && peer.state == State::kLive && !peer.farewell &&
        !peer.suspect_since && !(peer.goodbye && peer.over)) {
      return true;
    }
  }
  return false;
}

}  // namespace gradwire::comm
