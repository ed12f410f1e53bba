#include "collectives/engine/sender_search.h"

#include <algorithm>
#include <cstdint>

namespace gradwire {
namespace {

// Of a tag's channel: a probe asks for elements of any type, and so does a recv, whose failure says
// what was sent.
constexpr std::uint64_t kTypeBits = 0x70;

}  // namespace

Result<bool> SenderSearch::advance(Transport& transport, ScratchPool& pool) {
  if (receiving_ != nullptr) return receiving_->advance(transport, pool);
  if (done() || !find(transport)) return false;
  if (receiving_ != nullptr) GW_TRY(receiving_->advance(transport, pool).error());
  return true;
}

bool SenderSearch::done() const {
  if (receiving_ != nullptr) return receiving_->done();
  return answer_ != nullptr && (answer_->source >= 0 || answer_->unwanted);
}

std::vector<int> SenderSearch::waiting_for(const Transport& transport) const {
  if (receiving_ != nullptr) return receiving_->waiting_for(transport);
  std::vector<int> job_ranks;
  for (const int peer : request_.peers) {
    job_ranks.push_back((*request_.route.group)[static_cast<std::size_t>(peer)]);
  }
  std::ranges::sort(job_ranks);
  return job_ranks;
}

bool SenderSearch::tend(Transport& transport, Deadline now) {
  if (receiving_ != nullptr) return receiving_->tend(transport, now);
  return done() || find(transport);
}

bool SenderSearch::find(Transport& transport) {
  for (const int peer : request_.peers) {
    const std::uint64_t number = request_.ledger->next_recv(peer, request_.tag);
    const int job_rank = (*request_.route.group)[static_cast<std::size_t>(peer)];
    const auto tag = Tag::make(request_.route.communicator, pair_operation(request_.tag, number),
                               request_.route.first_channel);
    if (!tag.has_value() || !transport.has_message(job_rank, tag.value(), kTypeBits)) continue;
    if (answer_ != nullptr) {
      answer_->source = peer;
      return true;
    }
    if (const auto message = request_.ledger->claim(peer, request_.tag, number)) {
      receiving_ = receive_(peer, *message);
      return true;
    }
  }
  return false;
}

}  // namespace gradwire
