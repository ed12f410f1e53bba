#include "adapters/trainer/group_consensus.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"
#include "base/elements.h"
#include "base/mesh.h"

namespace gradwire {
namespace {

MeshScope mesh_scope(Scope scope) {
  switch (scope) {
    case Scope::kData: return MeshScope::kDp;
    case Scope::kTensor: return MeshScope::kTp;
    case Scope::kPipeline: return MeshScope::kPp;
    case Scope::kModel: return MeshScope::kModel;
    case Scope::kEmbedding: return MeshScope::kEmbed;
    case Scope::kReplica: return MeshScope::kReplica;
    case Scope::kWorld: return MeshScope::kWorld;
  }
  return MeshScope::kWorld;
}

Result<Work> sum_over(Communicator& group, std::span<double> values) {
  return group.all_reduce(view_of(values), ReduceOp::kSum,
                          {.algorithm = "canonical", .deadline = std::nullopt, .stream = {}});
}

}  // namespace

int GroupConsensus::ranks(Scope scope) const {
  return static_cast<int>(group_ranks(groups_.sizes(), mesh_scope(scope),
                                      rank_at(groups_.sizes(), groups_.coordinates()))
                              .size());
}

Status GroupConsensus::mean(std::span<double> values, Scope scope) {
  GW_TRY(sum(values, scope));
  const double share = 1.0 / ranks(scope);
  for (double& value : values) value *= share;
  return {};
}

Status GroupConsensus::sum(std::span<double> values, Scope scope) {
  if (values.empty()) return {};
  GW_ASSIGN(Communicator* const group, groups_.group(mesh_scope(scope)));
  WithWord sent(values, word_for(*group));
  GW_ASSIGN(Work work, sum_over(*group, sent.all()));
  GW_TRY(work.wait());
  sent.arrived();
  return {};
}

Result<bool> GroupConsensus::any(bool mine, Scope scope) {
  GW_ASSIGN(Communicator* const group, groups_.group(mesh_scope(scope)));
  float most = mine ? 1.0F : 0.0F;
  GW_ASSIGN(Work work, group->all_reduce(view_of(std::span(&most, 1)), ReduceOp::kMax));
  GW_TRY(work.wait());
  return most > 0;
}

GroupConsensus::Message& GroupConsensus::message_to(Communicator& group) {
  const auto known = std::ranges::find(under_way_, &group, &Message::group);
  if (known != under_way_.end()) return *known;
  Message& made = under_way_.emplace_back();
  made.group = &group;
  return made;
}

Status GroupConsensus::start(Message& message) {
  if (const Interruption* const told = word_for(*message.group); told != nullptr) {
    message.values.push_back(told->word());
  }
  GW_ASSIGN(Work work, sum_over(*message.group, message.values));
  message.work.emplace(std::move(work));
  return {};
}

Status GroupConsensus::start_sums(std::span<const ScopedValues> sums) {
  GW_CHECK(under_way_.empty());
  for (const ScopedValues& one : sums) {
    if (one.values.empty()) continue;
    GW_ASSIGN(Communicator* const group, groups_.group(mesh_scope(one.scope)));
    Message& message = message_to(*group);
    message.parts.push_back(one.values);
    message.values.insert(message.values.end(), one.values.begin(), one.values.end());
  }
  for (Message& message : under_way_) GW_TRY(start(message));
  return {};
}

Status GroupConsensus::finish_sums() {
  std::vector<Message> all = std::exchange(under_way_, {});
  Status first;
  for (Message& message : all) {
    const Status status = message.work ? message.work->wait() : Status();
    if (first.ok()) first = status;
  }
  GW_TRY(first);
  for (const Message& message : all) hand_out(message);
  return {};
}

// Sums that are there.
void GroupConsensus::hand_out(const Message& message) {
  auto from = message.values.begin();
  for (const std::span<double> part : message.parts) {
    std::copy_n(from, part.size(), part.begin());
    from += static_cast<std::ptrdiff_t>(part.size());
  }
  if (from != message.values.end()) word_for(*message.group)->hear(*from);
}

Status GroupConsensus::start_asking(std::span<double> values) {
  GW_CHECK(!asked_.work);
  GW_ASSIGN(asked_.group, groups_.group(MeshScope::kWorld));
  asked_.parts.assign(1, values);
  asked_.values.assign(values.begin(), values.end());
  return asked_.values.empty() && interruption_ == nullptr ? Status() : start(asked_);
}

Result<bool> GroupConsensus::heard() {
  if (!asked_.work) return false;
  const Status ended = asked_.work->wait();
  asked_.work.reset();
  GW_TRY(ended);
  hand_out(asked_);
  return interruption_ != nullptr && interruption_->agreed() != 0;
}

}  // namespace gradwire
