#include "comm/rendezvous/server_session.h"

#include <algorithm>
#include <chrono>

#include "base/text.h"

namespace gradwire::rendezvous {
SessionKeys derive_keys(std::string_view secret, const Hello& hello, const Challenge& challenge) {
  const std::vector<std::byte> who = encode(hello);
  const std::vector<std::byte> with = encode(challenge);
  const auto derive = [&](std::string_view purpose) {
    return hmac(bytes_of_text(secret), {bytes_of_text(purpose), who, with});
  };
  return {derive("gradwire client proof"), derive("gradwire server proof"),
          derive("gradwire to server"), derive("gradwire to client")};
}

std::optional<Refuse> Roster::join(std::uint32_t rank) {
  const std::lock_guard lock(mutex_);
  Presence& presence = presence_[rank];
  // A rank that left in good order may be back for the next job on this port, whose store is not
  // up yet: it may try again.
  const bool again = presence == Presence::kDone;
  if (presence != Presence::kNever && presence != Presence::kDropped)
    return Refuse{Code::kInvalidArgument, again,
                  format("rank %u is taken: a process of that rank has %s", rank,
                         presence == Presence::kHere ? "joined already" : "left already")};
  presence = Presence::kHere;
  return std::nullopt;
}

void Roster::leave(std::uint32_t rank, Presence now) {
  const std::lock_guard lock(mutex_);
  presence_[rank] = now;
}

int Roster::count(Presence presence) const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::ranges::count(presence_, presence));
}

std::string Roster::missing() const {
  const std::lock_guard lock(mutex_);
  std::string never;
  std::string lost;
  for (std::size_t rank = 0; rank < presence_.size(); ++rank) {
    if (presence_[rank] == Presence::kHere || presence_[rank] == Presence::kDone) continue;
    std::string& list = presence_[rank] == Presence::kNever ? never : lost;
    if (list.size() > 200) continue;  // a reader has the idea by then
    list += (list.empty() ? "" : ", ") + std::to_string(rank) + (list.size() > 190 ? ", ..." : "");
  }
  std::string text;
  if (!never.empty()) text = "ranks that did not join: " + never;
  if (!lost.empty())
    text += (text.empty() ? "" : "; ") + ("ranks that disconnected early: " + lost);
  if (!text.empty() && refusals_ > 0)
    text += format("; refused connections: %llu, the last of %s",
                   static_cast<unsigned long long>(refusals_), last_refusal_.c_str());
  return text;
}

void Roster::note_refusal(std::uint32_t rank, std::string reason) {
  std::ranges::replace_if(
      reason, [](char c) { return c < ' ' || c > '~'; }, '?');  // ASCII that prints
  const std::lock_guard lock(mutex_);
  ++refusals_;
  last_refusal_ = format("rank %u: %s", rank, reason.c_str());
}

ServerSession::~ServerSession() {
  if (!present_) return;
  job_.roster.leave(hello_.rank, has_asked_ ? Roster::Presence::kLost : Roster::Presence::kDropped);
}

Status ServerSession::receive(ConstByteSpan bytes, Deadline now) {
  if (over()) return {};
  channel_.receive(bytes);
  while (!over() && !backlogged()) {
    GW_ASSIGN(const auto frame, channel_.next());
    if (!frame) return {};
    GW_TRY(handle(*frame, now));
  }
  return {};
}

Status ServerSession::handle(const Frame& frame, Deadline now) {
  has_asked_ = stage_ == Stage::kJoined;
  if (stage_ == Stage::kHello && frame.kind == Kind::kHello) return on_hello(frame.body);
  if (stage_ == Stage::kProof && frame.kind == Kind::kProof) return on_proof(frame.body);
  if (stage_ == Stage::kJoined && frame.kind == Kind::kGet) return on_get(frame.body, now);
  if (stage_ == Stage::kJoined && frame.kind == Kind::kSet) return on_set(frame.body);
  if (stage_ == Stage::kJoined && frame.kind == Kind::kBye) {
    job_.roster.leave(hello_.rank, Roster::Presence::kDone);
    present_ = false;
    stage_ = Stage::kOver;
    return {};
  }
  return {Code::kCorruptPayload,
          format("rendezvous message %d at the wrong time", static_cast<int>(frame.kind))};
}

Status ServerSession::refuse(Refuse refusal) {
  stage_ = Stage::kOver;
  if (!refusal.again) job_.roster.note_refusal(hello_.rank, refusal.reason);
  channel_.send(Kind::kRefuse, encode(refusal));
  return {};
}

Status ServerSession::on_hello(ConstByteSpan body) {
  GW_ASSIGN(hello_, parse_hello(body));
  const bool sealed = !job_.secret.empty();
  const auto refused = [&](std::string reason) {
    return refuse({Code::kInvalidArgument, false, std::move(reason)});
  };
  if (hello_.version != kVersion)
    return refused(format("rendezvous protocol %d (expected %d)", hello_.version, kVersion));
  if (hello_.sealed != sealed)
    return refused(sealed ? "no secret was given (expected the job's secret)"
                          : "a secret was given (expected none, this job's rank 0 has none)");
  if (hello_.job != job_.job)  // strangers do not learn the name of a job that has a secret
    return refused(format("job '%s' (expected %s)", hello_.job.c_str(),
                          sealed ? "another one" : ("'" + job_.job + "'").c_str()));
  if (hello_.size != static_cast<std::uint32_t>(job_.size))
    return refused(
        format("a world of %u ranks (expected %d, as rank 0 has it)", hello_.size, job_.size));
  if (hello_.rank == 0 || hello_.rank >= hello_.size)
    return refused(format("rank %u (expected 1..%d; rank 0 is the one that serves)", hello_.rank,
                          job_.size - 1));
  const Challenge challenge{sealed, random_nonce()};
  if (sealed) keys_ = derive_keys(job_.secret, hello_, challenge);
  channel_.send(Kind::kChallenge, encode(challenge));
  stage_ = Stage::kProof;
  return {};
}

Status ServerSession::on_proof(ConstByteSpan body) {
  GW_ASSIGN(const Proof proof, parse_proof(body));
  if (!equal(proof.mac, keys_.client_proof))  // both zero where there is no secret
    return refuse({Code::kInvalidArgument, false, "wrong secret (expected the job's secret)"});
  if (const auto refusal = job_.roster.join(hello_.rank)) return refuse(*refusal);
  present_ = true;
  stage_ = Stage::kJoined;
  channel_.send(Kind::kWelcome, encode(Proof{keys_.server_proof}));
  if (!job_.secret.empty()) channel_.seal(keys_.to_client, keys_.to_server);
  channel_.allow_large();
  return {};
}

Status ServerSession::on_set(ConstByteSpan body) {
  GW_ASSIGN(const Set set, parse_set(body));
  const Status outcome = job_.table.set(set.key, set.value, Deadline());
  reply(set.id, outcome.code(), outcome.ok() ? ConstByteSpan() : bytes_of_text(outcome.message()));
  return {};
}

Status ServerSession::on_get(ConstByteSpan body, Deadline now) {
  GW_ASSIGN(Get get, parse_get(body));
  if (waiting_.size() >= kMaxWaiting)
    return {Code::kCorruptPayload,
            format("rank %u has more than %zu open gets", hello_.rank, kMaxWaiting)};
  const Deadline until = now + std::chrono::milliseconds(get.wait_ms);
  waiting_.push_back({std::move(get), now, until});
  answer_waiting(now);
  return {};
}

void ServerSession::answer_waiting(Deadline now) {
  const auto answered = [&](const Waiting& waiting) {
    if (backlogged()) return false;
    if (const auto value = job_.table.find(waiting.get.key)) {
      reply(waiting.get.id, Code::kOk, *value);
      return true;
    }
    if (now < waiting.until) return false;
    const std::chrono::duration<double> waited = now - waiting.since;
    const Status late = never_set(waiting.get.key, waited.count(), job_.roster.missing());
    reply(waiting.get.id, late.code(), bytes_of_text(late.message()));
    return true;
  };
  std::erase_if(waiting_, answered);
}

std::optional<Deadline> ServerSession::next_deadline() const {
  if (waiting_.empty() || backlogged()) return std::nullopt;
  return std::ranges::min_element(waiting_, {}, &Waiting::until)->until;
}

void ServerSession::reply(std::uint32_t id, Code code, ConstByteSpan data) {
  channel_.send(Kind::kReply, encode(Reply{id, code, {data.begin(), data.end()}}));
}

}  // namespace gradwire::rendezvous
