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
constexpr int kNeighbours = 2;  // to either side

}  // namespace

Status check_job(const char* transport, const Rendezvous& rendezvous, double heartbeat_seconds,
                 double liveness_seconds) {
  const auto [rank, size] = std::pair(rendezvous.rank, rendezvous.size);
  if (size < 1 || size > 65536 || rank < 0 || rank >= size) {
    return {Code::kInvalidArgument,
            format("%s: rank %d of %d (size 1 to 65536, rank below it)", transport, rank, size)};
  }
  if (size > 1 && rendezvous.store == nullptr) {
    return {Code::kInvalidArgument,
            format("%s: more than one rank needs a key-value store", transport)};
  }
  if (heartbeat_seconds <= 0 || liveness_seconds < 2 * heartbeat_seconds) {
    return {Code::kInvalidArgument,
            format("%s: heartbeat %g s, liveness %g s (expected liveness >= 2 heartbeats)",
                   transport, heartbeat_seconds, liveness_seconds)};
  }
  return {};
}

Membership::Membership(Carrier& carrier, Members members, const MembershipOptions& options,
                       Deadline now)
    : carrier_(carrier),
      members_(std::move(members)),
      options_(options),
      peers_(static_cast<std::size_t>(size())),
      liveness_(size(), self(), options.heartbeat, options.patience, now) {}

void Membership::send(int rank, Control message) {
  // Who has said goodbye may still wait for others, and take the end alone for a loss.
  const bool leaves_after = message.kind == Control::Kind::kGoodbye && at(rank).goodbye;
  if (rank == self() || !(live(rank) || leaves_after)) return;
  message.from = self();
  message.epoch = members_.job_epoch();
  carrier_.send(rank, message);
}

void Membership::tend(Deadline now) {
  liveness_.tick(now);
  if (liveness_.beat_due(now)) beat();
  if (now < next_look_) return;
  next_look_ = now + kLook;
  look_for_losses(now);
}

std::vector<int> Membership::next_to(int center) const {
  std::vector<int> ranks;
  for (const int step : {1, size() - 1}) {
    int rank = center;
    for (int found = 0, i = 1; i < size() && found < kNeighbours; ++i) {
      rank = (rank + step) % size();
      if (state(rank) == State::kLost) continue;
      ++found;
      if (live(rank) && !at(rank).goodbye) ranks.push_back(rank);
    }
  }
  return ranks;
}

void Membership::beat() {
  std::vector<int> ranks = awaited_();
  for (const int rank : neighbours()) ranks.push_back(rank);
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::erase_if(ranks, [&](int rank) {
    return rank == self() || !live(rank) || at(rank).goodbye || given_up_;
  });
  liveness_.watch(ranks);
  for (const int rank : ranks) send(rank, {.kind = Control::Kind::kHeartbeat, .flag = true});
}

Deadline Membership::next_event(Deadline now) const {
  const Deadline look = now + (suspects_ > 0 ? kLook : options_.heartbeat / 2);
  return std::min(look, std::max(now, liveness_.next_beat()));
}

void Membership::receive(const Control& message, Deadline now) {
  Peer& peer = at(message.from);
  if (peer.state == State::kLost) return;  // what a rank says that was given up is too late
  liveness_.tick(now);
  heard(message.from);
  switch (message.kind) {
    case Control::Kind::kVerdict: return on_verdict(message);
    case Control::Kind::kNote: {
      const auto* text = reinterpret_cast<const std::byte*>(message.text.data());
      notes_.push_back({message.from, {text, text + message.text.size()}});
      return;
    }
    case Control::Kind::kGoodbye:
      if (message.flag) on_verdict(message);
      if (peer.state != State::kLive) return;
      send(message.from, {.kind = Control::Kind::kFarewell});
      peer.goodbye = true;
      liveness_.forget(message.from);
      return close_if_done(message.from);
    case Control::Kind::kFarewell: peer.farewell = true; return;
    case Control::Kind::kClosed: return on_closed(message);
    case Control::Kind::kHeartbeat:
      if (message.flag && !liveness_.watched(message.from)) send(message.from, {});
      return;
    case Control::Kind::kHello:
    case Control::Kind::kTaken:
    case Control::Kind::kWithdraw:
    case Control::Kind::kWant:
    case Control::Kind::kCredit:
    case Control::Kind::kAddress: return;
    case Control::Kind::kSevered: return unsuspect(message.from);
  }
}

// A rank that is not gone concerns only those who have been rebuilt as often as its reporter.
void Membership::on_verdict(const Control& message) {
  const LostPeer loss{.rank = message.about,
                      .reason = message.text,
                      .gone = message.gone,
                      .certain = message.certain,
                      .cause = message.cause,
                      .operation = message.operation};
  if (loss.gone) return lose(loss, message.reporter);
  if (message.id == members_.version()) (void)blame(loss, message.reporter);
}

void Membership::suspect(int rank, const std::string& reason, Deadline now, LossCause cause) {
  Peer& peer = at(rank);
  if (peer.suspect_since || peer.state != State::kLive || peer.goodbye) return;
  peer.suspect_since = now;
  peer.reason = reason;
  peer.cause = cause;
  ++suspects_;
  if (peer.heard) return;
  peer.reason = format("no connection with it, which may have closed: %s", reason.c_str());
  for (const int other : next_to(rank)) {
    send(other, {.kind = Control::Kind::kClosed, .flag = true, .about = rank});
  }
}

// A rank says goodbye to those alone with whom it has a connection.
void Membership::on_closed(const Control& message) {
  Peer& peer = at(message.about);
  if (message.flag && peer.goodbye) {
    send(message.from, {.kind = Control::Kind::kClosed, .about = message.about});
  } else if (!message.flag && !peer.heard) {
    peer.goodbye = peer.over = true;
    liveness_.forget(message.about);
    close_if_done(message.about);
    carrier_.cut(message.about);
  }
}

void Membership::unsuspect(int rank) {
  if (at(rank).suspect_since) --suspects_;
  at(rank).suspect_since.reset();
}

void Membership::condemn(int rank, const std::string& reason) {
  lose({.rank = rank, .reason = reason, .cause = LossCause::kConnection}, self());
}

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
  unsuspect(rank);
  peer.state = State::kClosed;
  peer.reason = "closed";
  peer.cause = LossCause::kClosed;
  changed_ = true;
}

std::string Membership::told(const LostPeer& loss, int reporter) const {
  if (reporter == self()) return loss.reason;
  return format("reported by rank %d: %s", reporter, loss.reason.c_str());
}

// The first loss stays, and is passed on once, so that it reaches everybody even if the rank
// that saw it first goes at once.
bool Membership::blame(const LostPeer& loss, int reporter) {
  if (lost_ || !members_.has(loss.rank) || (loss.gone && at(loss.rank).accepted)) return false;
  lost_ = loss;
  lost_->reason = told(loss, reporter);
  lost_->reporter = reporter == self() ? -1 : reporter;
  verdict_ = verdict_on(loss, reporter);
  const std::string what = loss.gone ? format("rank %d lost: ", loss.rank)
                           : loss.cause == LossCause::kDisagreement
                               ? std::string("operations end, no rank is lost, ranks disagree: ")
                               : std::string("operations end, no rank is lost: ");
  options_.log(LogLevel::kWarn, what + lost_->reason);
  for (int rank = 0; rank < size(); ++rank) send(rank, *verdict_);
  return true;
}

Control Membership::verdict_on(const LostPeer& loss, int reporter) const {
  return {.kind = Control::Kind::kVerdict,
          .about = loss.rank,
          .reporter = reporter,
          .gone = loss.gone,
          .certain = loss.certain,
          .cause = loss.cause,
          .operation = loss.operation,
          .id = members_.version(),
          .text = loss.reason};
}

void Membership::lose(const LostPeer& loss, int reporter) {
  const int rank = loss.rank;
  const bool all_know = blame(loss, reporter);
  const std::string reason = told(loss, reporter);
  if (rank == self()) {  // the others have given this rank up: it reaches nobody any more
    given_up_ = true;
    for (int other = 0; other < size(); ++other) {
      if (!live(other) || other == self()) continue;
      unsuspect(other);
      liveness_.forget(other);  // nothing comes from it any more: it would be silent for good
      at(other).state = State::kLost;
      at(other).reason = format("it considers this rank lost (%s)", reason.c_str());
      carrier_.cut(other);
    }
    at(rank).reason = reason;
    changed_ = true;
    return;
  }
  Peer& peer = at(rank);
  const bool certain = loss.certain || peer.certain || peer.state == State::kClosed;
  if (peer.state == State::kLost) {
    if (certain) make_certain(rank);
    return;
  }
  unsuspect(rank);
  // It counts for no side. One that is stopped may be continued: it must know then, or with others
  // like it it might hold itself for the larger side.
  if (certain && !all_know) send(rank, verdict_on(loss, reporter));
  peer.state = State::kLost;
  peer.reason = reason;
  peer.certain = certain;
  peer.cause = loss.cause;
  peer.reporter = reporter == self() ? -1 : reporter;
  // Not all watch it. Who was only late for others is for each side to judge.
  const bool noticed = loss.cause == LossCause::kConnection || loss.cause == LossCause::kSilence;
  for (int other = 0; noticed && !all_know && other < size(); ++other) {
    send(other, verdict_on(loss, reporter));
  }
  liveness_.forget(rank);
  carrier_.cut(rank);
  changed_ = true;
}

// Of one that is lost already: why stays as it was told first, and the others have the word of who
// knows it. A goodbye from here says it too.
void Membership::make_certain(int rank) {
  at(rank).certain = true;
  if (!lost_ || lost_->rank != rank || !lost_->gone) return;
  lost_->certain = true;
  verdict_->certain = true;
}

// Who has said goodbye waits for nobody, and whom it told closes its end: that is no loss, though
// it goes on with the others.
void Membership::look_for_losses(Deadline now) {
  if (goodbye_) return;
  const auto ripe = [&](const Peer& peer) {
    return peer.state == State::kLive && !peer.goodbye && peer.suspect_since &&
           now - *peer.suspect_since >= kSuspicion;
  };
  const auto find_lost = [&](int rank, const std::string& why, LossCause cause) {
    const bool certain = members_.surely_gone(rank);
    lose({.rank = rank, .reason = why, .certain = certain, .cause = cause}, self());
  };
  // The earliest first: a rank that was kept from running may find two ripe at once, and who went
  // because of the other is not to be blamed.
  while (suspects_ > 0) {  // ends: lose() leaves no peer live
    std::optional<int> first;
    for (int rank = 0; rank < size(); ++rank) {
      if (rank == self() || !ripe(at(rank))) continue;
      if (!first || *at(rank).suspect_since < *at(*first).suspect_since) first = rank;
    }
    if (!first) break;
    find_lost(*first, at(*first).reason, at(*first).cause);
  }
  while (const auto silent = liveness_.silent()) {  // ends: it is forgotten, by lose() too
    const std::chrono::duration<double> silence = liveness_.silence_of(*silent);
    const std::string reason = format("no heartbeat for %.1f s", silence.count());
    if (!at(*silent).heard) {
      liveness_.forget(*silent);
      suspect(*silent, reason, now, LossCause::kSilence);
      continue;
    }
    find_lost(*silent, reason, LossCause::kSilence);
  }
}

void Membership::need(int rank) {
  (void)blame({.rank = rank, .reason = at(rank).reason, .certain = true, .cause = at(rank).cause},
              self());
}

void Membership::announce(const LostPeer& loss) {
  if (loss.rank < 0 || loss.rank >= size()) return;
  if (loss.gone && loss.rank != self()) return lose(loss, self());
  // This rank's own failure: the others hear why it goes; it still reaches them.
  (void)blame(loss, self());
}

void Membership::tell(int rank, ConstByteSpan note) {
  if (rank < 0 || rank >= size() || note.size() > Transport::kMostNoteBytes) return;
  const auto* text = reinterpret_cast<const char*>(note.data());
  send(rank, {.kind = Control::Kind::kNote, .text = std::string(text, note.size())});
}

std::vector<LostPeer> Membership::all_lost() const {
  std::vector<LostPeer> lost;
  for (int rank = 0; rank < size(); ++rank) {
    const Peer& peer = at(rank);
    const bool gone = rank == self() ? given_up_ : peer.state != State::kLive;
    if (!gone || !members_.has(rank)) continue;
    // A process that was about to end when its connection did has ended by now.
    const bool ended = rank != self() && members_.surely_gone(rank);
    lost.push_back({.rank = rank,
                    .reason = peer.reason,
                    .certain = peer.certain || peer.state == State::kClosed || ended,
                    .cause = peer.cause,
                    .reporter = peer.reporter});
  }
  return lost;
}

// What others still say of them is no news. A goodbye from here goes on to name the first of them.
void Membership::accept_losses() {
  lost_.reset();
  for (Peer& peer : peers_) peer.accepted = peer.state == State::kLost;
}

Status Membership::rebuild(std::span<const int> survivors, std::uint32_t version) {
  for (const int rank : survivors) {
    if (state(rank) == State::kLost) return why(rank);
  }
  members_.advance(survivors, version);
  for (int rank = 0; rank < size(); ++rank) {
    Peer& peer = at(rank);
    if (members_.has(rank) || peer.state != State::kLive) continue;
    peer.state = State::kLost;
    peer.reason = "left behind";
    liveness_.forget(rank);
    carrier_.cut(rank);
  }
  lost_.reset();
  verdict_.reset();
  return {};
}

Status Membership::why(int rank) const {
  const Peer& peer = at(rank);
  if (peer.state == State::kClosed) return {Code::kPeerLost, format("rank %d closed", rank)};
  return {Code::kPeerLost, format("rank %d lost: %s", rank, peer.reason.c_str())};
}

void Membership::welcome(int rank) {
  if (verdict_) send(rank, *verdict_);
  if (goodbye_) send(rank, *goodbye_);
}

void Membership::say_goodbye() {
  goodbye_ = verdict_.value_or(Control{});
  goodbye_->kind = Control::Kind::kGoodbye;
  goodbye_->flag = verdict_.has_value();
  for (int rank = 0; rank < size(); ++rank) send(rank, *goodbye_);
}

bool Membership::awaits_farewell() const {
  for (int rank = 0; rank < size(); ++rank) {
    const Peer& peer = at(rank);
    if (rank != self() && peer.state == State::kLive && carrier_.connected(rank) &&
        !peer.farewell && !peer.suspect_since && !(peer.goodbye && peer.over)) {
      return true;
    }
  }
  return false;
}

}  // namespace gradwire::comm
