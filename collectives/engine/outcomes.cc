#include "collectives/engine/outcomes.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::string_view kDisagreement = "ranks disagree";
constexpr std::string_view kTookNoPart = "took no part";
// An operation may end a second late. This is for the roll call; what follows it is quick.
constexpr double kRollCallSeconds = 0.4;

double seconds_between(Deadline from, Deadline to) {
  return std::chrono::duration<double>(to - from).count();
}

// "all_reduce (operation 41)"
std::string name_of(const Operation& operation) {
  return format("%s (operation %llu)", std::string(operation.signature.name).c_str(),
                static_cast<unsigned long long>(operation.number));
}

std::string deadline_of(const Operation& operation) {
  return format(" (deadline %.1f s)", seconds_between(operation.started, operation.deadline));
}

std::vector<int> union_of(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> all;
  std::ranges::set_union(a, b, std::back_inserter(all));
  return all;
}

std::vector<int> ranks_of(const std::vector<LostPeer>& peers) {
  std::vector<int> ranks;
  for (const LostPeer& peer : peers) ranks.push_back(peer.rank);
  return ranks;
}

// "rank 2: killed; rank 3: no heartbeat for 5.0 s"
std::string reasons_of(const std::vector<LostPeer>& peers) {
  std::string text;
  for (const LostPeer& peer : peers) {
    text += format(text.empty() ? "rank %d: " : "; rank %d: ", peer.rank) + peer.reason;
  }
  return text;
}

// Ranks without which the operation timed out.
std::vector<int> missing(const Failure& failure) {
  return union_of(failure.call.silent, failure.call.absent);
}

std::string missing_text(const Failure& failure) {
  std::string text(kTookNoPart);
  if (failure.call.absent.empty()) return text + ", no answer";
  if (failure.call.absent_do.empty()) return text;
  return text + ", " + (missing(failure).size() == 1 ? "its" : "one's") + " last is " +
         failure.call.absent_do;
}

std::string awaited_text(const Operation& operation, const Transport& transport) {
  const std::vector<int> ranks = operation.execution->waiting_for(transport);
  return ranks.empty() && operation.execution->awaited().device ? "its device" : ranks_text(ranks);
}

// Whether this rank's side may not go on without those that it does not hear, as shrink() decides
// it. One rank that only leaves the query of a failure unanswered may be slow, or stopped on this
// host: it is reported, and this rank is not called isolated.
bool isolates(const Failure& failure, const std::vector<int>& group, SideRule rule) {
  std::set<int> here(group.begin(), group.end()), beyond;
  for (const LostPeer& lost : failure.lost) {
    if (here.erase(lost.rank) > 0 && !lost.certain) beyond.insert(lost.rank);
  }
  if (beyond.empty() && failure.call.silent.size() == 1) rule.allow_lone = true;
  for (const int rank : failure.call.silent) {
    if (here.erase(rank) > 0) beyond.insert(rank);
  }
  return !here.empty() &&
         outvoted({here.begin(), here.end()}, {beyond.begin(), beyond.end()}, rule);
}

// Of all that cannot be reached, those that are part of why.
std::vector<LostPeer> gone(const Transport& transport, const std::optional<LostPeer>& reported) {
  std::vector<LostPeer> lost = transport.all_lost();
  std::erase_if(lost, [&](const LostPeer& peer) {
    const bool named = reported && reported->rank == peer.rank;
    return !named && (peer.cause == LossCause::kClosed || peer.rank == transport.rank());
  });
  return lost;
}

// `where`: " in all_reduce (operation 41) after 3.2 s", or empty.
Status lost_outcome(const std::string& where, const std::string& deadline, const Failure& failure) {
  const LostPeer& loss = *failure.reported;
  if (!loss.gone && loss.cause == LossCause::kDisagreement) {
    return {Code::kRankMismatch,
            std::string(kDisagreement) + where + ": " + loss.reason + deadline};
  }
  const std::vector<int> lost = ranks_of(failure.lost);
  const bool several =
      loss.gone && lost.size() > 1 && std::ranges::find(lost, loss.rank) != lost.end();
  const std::string what = several     ? ranks_text(lost) + " lost"
                           : loss.gone ? format("rank %d lost", loss.rank)
                                       : format("rank %d gave up", loss.rank);
  return {Code::kPeerLost,
          what + where + ": " + (several ? reasons_of(failure.lost) : loss.reason) + deadline};
}

}  // namespace

Failure investigate(Transport& transport, const Operation* failed_first, Status cause,
                    const FlightRecorder& recorder, const SideRule& rule) {
  Failure failure{.cause = std::move(cause), .reported = transport.lost()};
  failure.rank = transport.rank();
  failure.lost = gone(transport, failure.reported);
  const int closed_peer = failed_first == nullptr ? -1 : failed_first->execution->closed_peer();
  if (closed_peer >= 0 && !failure.reported) {
    failure.reported = LostPeer{
        .rank = closed_peer, .reason = "closed", .certain = true, .cause = LossCause::kClosed};
    return failure;
  }
  const Code code = failure.cause.code();
  const bool asks = code == Code::kTimedOut || code == Code::kRankMismatch;
  if (!transport.caps().notes || failed_first == nullptr || !failed_first->collective)
    return failure;
  const Route& route = failed_first->execution->route();
  if (asks && !failure.reported) {
    const std::string own = to_string(failed_first->signature);
    failure.call =
        take_roll_call(transport, {*route.group, route.communicator, failed_first->number, own},
                       recorder, kRollCallSeconds);
    failure.reported = transport.lost();
    failure.lost = gone(transport, failure.reported);
    if (!failure.call.disagreement.empty()) {
      const std::string found =
          code == Code::kRankMismatch ? "; " + std::string(failure.cause.message()) : "";
      failure.cause =
          Status(Code::kRankMismatch,
                 failure.call.disagreement + format(", rank %d runs ", failure.rank) + own + found);
    }
  }
  failure.isolated = isolates(failure, *route.group, rule);
  return failure;
}

Status outcome_of(const Operation& operation, const Failure& failure, const Transport& transport,
                  Deadline now) {
  const std::string place =
      name_of(operation) + format(" after %.1f s", seconds_between(operation.started, now));
  const std::string deadline = deadline_of(operation);
  const std::string cause(failure.cause.message());
  const Code code = failure.cause.code();
  if (code == Code::kCancelled) return {code, place + ": " + cause};
  if (code == Code::kRankMismatch) {
    return {code, std::string(kDisagreement) + " in " + place + ": " + cause};
  }
  if (failure.isolated) {
    std::string why = reasons_of(failure.lost);
    if (!failure.call.silent.empty()) {
      why += (why.empty() ? "" : "; ") + ("no answer from " + ranks_text(failure.call.silent));
    }
    return {Code::kPeerLost,
            format("rank %d isolated in ", failure.rank) + place + ": " + why + deadline};
  }
  if (failure.reported) return lost_outcome(" in " + place, deadline, failure);
  // Whom the roll call did not find is called what the others are told that it is.
  if (code == Code::kTimedOut && !missing(failure).empty()) {
    return {code, ranks_text(missing(failure)) + " lost in " + place + ": " +
                      missing_text(failure) + deadline};
  }
  if (code == Code::kTimedOut) {
    return {code, format("rank %d timed out in ", failure.rank) + place + ": waiting for " +
                      awaited_text(operation, transport) + deadline};
  }
  return {code, format("rank %d failed in ", failure.rank) + place + ": " + cause + deadline};
}

Status outcome_between_operations(const Failure& failure) {
  const bool gave_up = failure.reported && !failure.reported->gone;
  if (!gave_up || failure.cause.code() != Code::kPeerLost) return failure.cause;
  return lost_outcome("", "", failure);
}

Status outcome_of_loss(const Failure& failure) {
  return failure.reported ? lost_outcome("", "", failure) : failure.cause;
}

std::vector<int> lost_by(const Failure& failure) {
  const Code code = failure.cause.code();
  if (failure.isolated || code == Code::kRankMismatch || code == Code::kCancelled) return {};
  if (failure.reported && !failure.reported->gone) return {};
  std::vector<int> lost = ranks_of(failure.lost);
  if (failure.reported) lost.push_back(failure.reported->rank);
  if (!failure.reported && code == Code::kTimedOut) lost = union_of(lost, missing(failure));
  std::ranges::sort(lost);
  lost.erase(std::unique(lost.begin(), lost.end()), lost.end());
  return std::ranges::binary_search(lost, failure.rank) ? std::vector<int>() : lost;
}

std::vector<LostPeer> reports_of(const Operation* operation, const Failure& failure,
                                 const Transport& transport) {
  if (failure.isolated) return {};  // the others know better
  if (failure.reported) {
    // What another rank has told us, it has told all.
    if (failure.reported->reporter >= 0) return {};
    return {*failure.reported};
  }
  const std::string cause(failure.cause.message());
  const auto number =
      operation == nullptr ? std::nullopt : std::optional<std::uint64_t>(operation->number);
  const auto own = [&](std::string reason, LossCause why = LossCause::kGaveUp) {
    return std::vector{LostPeer{.rank = failure.rank,
                                .reason = std::move(reason),
                                .gone = false,
                                .cause = why,
                                .operation = number}};
  };
  if (failure.cause.code() == Code::kRankMismatch) return own(cause, LossCause::kDisagreement);
  if (failure.cause.code() != Code::kTimedOut || operation == nullptr) return own(cause);
  std::vector<LostPeer> reports;
  for (const int rank : missing(failure)) {
    reports.push_back({.rank = rank,
                       .reason = std::string(kTookNoPart) + " in " + name_of(*operation),
                       .cause = LossCause::kNoPart,
                       .operation = number});
  }
  if (!reports.empty()) return reports;
  return own("timed out in " + name_of(*operation) + " waiting for " +
             awaited_text(*operation, transport));
}

}  // namespace gradwire
