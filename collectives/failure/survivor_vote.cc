#include "collectives/failure/survivor_vote.h"

#include <algorithm>
#include <utility>

namespace gradwire {

SurvivorVote::SurvivorVote(int self, std::vector<int> group, std::uint32_t generation,
                           const SideRule& rule)
    : self_(self), group_(std::move(group)), rule_(rule) {
  own_.generation = generation;
  update();
}

void SurvivorVote::lose(int rank, bool certain) {
  if (state_ != State::kOpen) return;
  if (rank == self_ || !std::ranges::binary_search(group_, rank)) return;
  lost_.insert(rank);
  if (certain) certain_.insert(rank);
  update();
}

void SurvivorVote::hear(int from, const Proposal& proposal) {
  if (state_ != State::kOpen || from == self_ || is_lost(from) ||
      !std::ranges::binary_search(group_, from))
    return;
  heard_[from] = proposal;
  own_.generation = std::max(own_.generation, proposal.generation);
  // Who holds this rank for lost is on another side, and what it thinks of others is its affair.
  if (std::ranges::binary_search(proposal.lost, self_)) return lose(from, false);
  for (const int rank : proposal.lost) {
    if (!std::ranges::binary_search(group_, rank)) continue;
    lost_.insert(rank);
    if (std::ranges::binary_search(proposal.certain, rank)) certain_.insert(rank);
  }
  update();
}

std::vector<int> SurvivorVote::audience() const {
  std::vector<int> ranks = survivors();
  std::erase(ranks, self_);
  return ranks;
}

std::vector<int> SurvivorVote::absent() const {
  std::vector<int> ranks = audience();
  std::erase_if(ranks, [&](int rank) { return heard_.contains(rank); });
  return ranks;
}

std::vector<int> SurvivorVote::survivors() const {
  std::vector<int> ranks = group_;
  std::erase_if(ranks, [&](int rank) { return is_lost(rank); });
  return ranks;
}

void SurvivorVote::update() {
  own_.lost.assign(lost_.begin(), lost_.end());
  own_.certain.assign(certain_.begin(), certain_.end());
  const std::vector<int> others = audience();
  const auto proposes_the_same = [&](int rank) {
    const auto found = heard_.find(rank);
    return found != heard_.end() && found->second.generation == own_.generation &&
           found->second.lost == own_.lost && found->second.certain == own_.certain;
  };
  own_.ready = std::ranges::all_of(others, proposes_the_same);
  if (!own_.ready) return;
  if (outvoted(survivors(), beyond(), rule_)) {
    state_ = State::kIsolated;
  } else if (std::ranges::all_of(others, [&](int rank) { return heard_.at(rank).ready; })) {
    state_ = State::kAgreed;
  }
}

std::vector<int> SurvivorVote::beyond() const {
  std::vector<int> ranks = own_.lost;
  std::erase_if(ranks, [&](int rank) { return certain_.contains(rank); });
  return ranks;
}

bool outvoted(const std::vector<int>& here, const std::vector<int>& beyond, const SideRule& rule) {
  if (beyond.empty() || rule.by_token) return false;
  if (here.size() == 1) return !rule.allow_lone;
  if (here.size() != beyond.size()) return here.size() < beyond.size();
  return beyond.front() < here.front();
}

}  // namespace gradwire
