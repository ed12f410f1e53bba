#include "adapters/trainer/group_consensus.h"

#include <utility>

#include "base/check.h"
#include "base/elements.h"

namespace gradwire {
namespace {

Result<Work> fold(Communicator& group, std::span<double> values, ReduceOp op) {
  return group.all_reduce(view_of(values), op,
                          {.algorithm = "canonical", .deadline = std::nullopt, .stream = {}});
}

}  // namespace

Communicator* GroupConsensus::group(Scope scope) const {
  return scope == Scope::kData || scope == Scope::kWorld ? &world_ : nullptr;
}

int GroupConsensus::ranks(Scope scope) const {
  const Communicator* const among = group(scope);
  return among == nullptr ? 1 : among->size();
}

Status GroupConsensus::mean(std::span<double> values, Scope scope) {
  Communicator* const among = group(scope);
  if (values.empty() || among == nullptr) return {};
  WithWord sent(values, word_for(among));
  GW_ASSIGN(Work work, fold(*among, sent.all(), ReduceOp::kMean));
  GW_TRY(work.wait());
  sent.arrived(among->size());
  return {};
}

Status GroupConsensus::sum(std::span<double> values, Scope scope) {
  Communicator* const among = group(scope);
  if (values.empty() || among == nullptr) return {};
  GW_ASSIGN(Work work, fold(*among, values, ReduceOp::kSum));
  return work.wait();
}

Result<bool> GroupConsensus::any(bool mine, Scope scope) {
  Communicator* const among = group(scope);
  if (among == nullptr) return mine;
  float most = mine ? 1.0F : 0.0F;
  GW_ASSIGN(Work work, among->all_reduce(view_of(std::span(&most, 1)), ReduceOp::kMax));
  GW_TRY(work.wait());
  return most > 0;
}

Status GroupConsensus::start_mean(std::span<double> values, Scope scope) {
  GW_CHECK(!mean_);
  Communicator* const among = group(scope);
  if (values.empty() || among == nullptr) return {};
  sent_.emplace(values, word_for(among));
  mean_ranks_ = among->size();
  GW_ASSIGN(Work work, fold(*among, sent_->all(), ReduceOp::kMean));
  mean_.emplace(std::move(work));
  return {};
}

Status GroupConsensus::finish_mean() {
  if (!mean_) return {};
  const Status status = mean_->wait();
  mean_.reset();
  if (status.ok()) sent_->arrived(mean_ranks_);
  return status;
}

}  // namespace gradwire
