#include "collectives/engine/sender_search.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace gradwire {
namespace {

constexpr unsigned kTagBits = 16;
constexpr std::chrono::milliseconds kFirstPause{20};
constexpr std::chrono::milliseconds kLongestPause{1000};

}  // namespace

EngineNote note_about(EngineNote::Kind kind, std::uint32_t communicator, std::uint32_t generation,
                      int tag, std::uint64_t count) {
  return {.kind = kind,
          .communicator = communicator,
          .operation = count << kTagBits | static_cast<std::uint64_t>(tag),
          .generation = generation};
}

int tag_of(const EngineNote& note) {
  return static_cast<int>(note.operation & ((std::uint64_t{1} << kTagBits) - 1));
}

std::uint64_t count_of(const EngineNote& note) { return note.operation >> kTagBits; }

SenderSearch::SenderSearch(Wish wish, Receive receive)
    : wish_(std::move(wish)), receive_(std::move(receive)), pause_(kFirstPause) {}

SenderSearch::SenderSearch(Wish wish, std::shared_ptr<Answer> answer)
    : wish_(std::move(wish)), answer_(std::move(answer)), pause_(kFirstPause) {}

Result<bool> SenderSearch::advance(Transport& transport, ScratchPool& pool) {
  if (receiving_ != nullptr) return receiving_->advance(transport, pool);
  if (done()) return false;
  if (!asked_) ask(transport, std::chrono::steady_clock::now());
  if (!found()) return false;
  if (receiving_ != nullptr) GW_TRY(receiving_->advance(transport, pool).error());
  return true;
}

bool SenderSearch::done() const {
  if (receiving_ != nullptr) return receiving_->done();
  return answer_ != nullptr && (answer_->source >= 0 || answer_->unwanted);
}

void SenderSearch::cancel(Transport& transport) {
  if (receiving_ != nullptr) receiving_->cancel(transport);
}

bool SenderSearch::settled(Transport& transport) {
  return receiving_ == nullptr || receiving_->settled(transport);
}

void SenderSearch::release(ScratchPool& pool) {
  if (receiving_ != nullptr) receiving_->release(pool);
}

std::vector<int> SenderSearch::waiting_for(const Transport& transport) const {
  if (receiving_ != nullptr) return receiving_->waiting_for(transport);
  std::vector<int> job_ranks;
  for (const int peer : wish_.peers) {
    job_ranks.push_back((*wish_.route.group)[static_cast<std::size_t>(peer)]);
  }
  std::ranges::sort(job_ranks);
  return job_ranks;
}

bool SenderSearch::tend(Transport& transport, Deadline now) {
  if (receiving_ != nullptr) return receiving_->tend(transport, now);
  if (asked_ && now >= ask_again_) ask(transport, now);
  return done();
}

void SenderSearch::ask(Transport& transport, Deadline now) {
  const EngineNote question = note_about(EngineNote::Kind::kSearch, wish_.route.communicator,
                                         wish_.generation, wish_.tag, 0);
  for (const int peer : wish_.peers) {
    transport.tell((*wish_.route.group)[static_cast<std::size_t>(peer)], encode(question));
  }
  asked_ = true;
  ask_again_ = now + pause_;
  pause_ = std::min<Deadline::duration>(pause_ * 2, kLongestPause);
}

bool SenderSearch::found() {
  for (const int peer : wish_.peers) {
    if (answer_ != nullptr) {
      if (!wish_.ledger->waits(peer, wish_.tag)) continue;
      answer_->source = peer;
      return true;
    }
    if (const auto message = wish_.ledger->claim(peer, wish_.tag)) {
      receiving_ = receive_(peer, *message);
      return true;
    }
  }
  return false;
}

}  // namespace gradwire
