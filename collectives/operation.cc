#include "collectives/operation.h"

#include <chrono>

#include "base/text.h"

namespace gradwire {
namespace {

// Stands in a verdict whose reason is that ranks disagree, so that all report the same code.
constexpr std::string_view kDisagreement = "ranks disagree";
constexpr std::string_view kHearsay = "reported by rank";

double seconds_between(Deadline from, Deadline to) {
  return std::chrono::duration<double>(to - from).count();
}

// "all_reduce (operation 41) after 3.2 s"
std::string place_of(const Operation& operation, Deadline now) {
  return format("%s (operation %llu) after %.1f s", std::string(operation.name).c_str(),
                static_cast<unsigned long long>(operation.number),
                seconds_between(operation.started, now));
}

std::string deadline_of(const Operation& operation) {
  return format(" (deadline %.1f s)", seconds_between(operation.started, operation.deadline));
}

}  // namespace

std::string description_of(const Operation& operation) {
  std::string text(operation.name);
  if (operation.elems >= 0) text += " of " + std::to_string(operation.elems);
  if (!operation.dtype.empty()) text += " " + std::string(operation.dtype);
  return text;
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  }
  return ranks.empty() ? "no rank" : text;
}

Status outcome_of(const Operation& operation, const Failure& failure, const Transport& transport,
                  Deadline now) {
  const std::string place = place_of(operation, now);
  const std::string cause(failure.cause.message());
  if (failure.cause.code() == Code::kCancelled) {
    return {Code::kCancelled, place + ": " + cause};
  }
  if (failure.cause.code() == Code::kRankMismatch) {
    return {Code::kRankMismatch, std::string(kDisagreement) + " in " + place + ": " + cause};
  }
  if (failure.lost) {
    const bool disagreement = failure.lost->reason.find(kDisagreement) != std::string::npos;
    return {disagreement ? Code::kRankMismatch : Code::kPeerLost,
            format("rank %d lost in ", failure.lost->rank) + place + ": " + failure.lost->reason +
                deadline_of(operation)};
  }
  // The one whom the roll call did not find is called what the others are told that it is.
  if (failure.cause.code() == Code::kTimedOut && failure.missing.size() == 1) {
    return {Code::kTimedOut, format("rank %d lost in ", failure.missing.front()) + place +
                                 ": took no part" + deadline_of(operation)};
  }
  if (failure.cause.code() == Code::kTimedOut) {
    return {Code::kTimedOut,
            format("rank %d timed out in ", failure.rank) + place + ": waiting for " +
                ranks_text(operation.execution->waiting_for(transport)) + deadline_of(operation)};
  }
  return {failure.cause.code(), format("rank %d failed in ", failure.rank) + place + ": " + cause +
                                    deadline_of(operation)};
}

std::optional<LostPeer> verdict_of(const Operation* operation, const Failure& failure,
                                   const Transport& transport) {
  if (failure.lost) {
    // What another rank has told us, it has told all.
    if (failure.lost->reason.starts_with(kHearsay)) return std::nullopt;
    return failure.lost;
  }
  const std::string cause(failure.cause.message());
  if (failure.cause.code() == Code::kRankMismatch && operation != nullptr) {
    const std::vector<int> peers = operation->execution->waiting_for(transport);
    return LostPeer{peers.empty() ? failure.rank : peers.front(),
                    std::string(kDisagreement) + ": " + cause};
  }
  if (failure.cause.code() == Code::kTimedOut && operation != nullptr) {
    // Of several, some may only have begun later than the roll call: then everybody says for itself
    // whom it waits for, and nobody is accused.
    if (failure.missing.size() != 1) return std::nullopt;
    return LostPeer{
        failure.missing.front(),
        format("took no part in %s (operation %llu)", std::string(operation->name).c_str(),
               static_cast<unsigned long long>(operation->number))};
  }
  return LostPeer{failure.rank, cause};
}

}  // namespace gradwire
