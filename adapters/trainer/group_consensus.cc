#include "adapters/trainer/group_consensus.h"

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

Result<Work> fold(Communicator& group, std::span<double> values, ReduceOp op) {
  return group.all_reduce(view_of(values), op,
                          {.algorithm = "canonical", .deadline = std::nullopt, .stream = {}});
}

}  // namespace

Result<GroupConsensus> GroupConsensus::of_replicas(Communicator& world) {
  GW_ASSIGN(MeshGroups groups, MeshGroups::create(world, {.pp = 1, .dp = world.size(), .tp = 1}));
  return GroupConsensus(std::move(groups));
}

int GroupConsensus::ranks(Scope scope) const {
  return static_cast<int>(group_ranks(groups_.sizes(), mesh_scope(scope),
                                      rank_at(groups_.sizes(), groups_.coordinates()))
                              .size());
}

Status GroupConsensus::mean(std::span<double> values, Scope scope) {
  if (values.empty()) return {};
  GW_ASSIGN(Communicator* const group, groups_.group(mesh_scope(scope)));
  WithWord sent(values, word_for(scope));
  GW_ASSIGN(Work work, fold(*group, sent.all(), ReduceOp::kMean));
  GW_TRY(work.wait());
  sent.arrived(group->size());
  return {};
}

Status GroupConsensus::sum(std::span<double> values, Scope scope) {
  if (values.empty()) return {};
  GW_ASSIGN(Communicator* const group, groups_.group(mesh_scope(scope)));
  GW_ASSIGN(Work work, fold(*group, values, ReduceOp::kSum));
  return work.wait();
}

Result<bool> GroupConsensus::any(bool mine, Scope scope) {
  GW_ASSIGN(Communicator* const group, groups_.group(mesh_scope(scope)));
  float most = mine ? 1.0F : 0.0F;
  GW_ASSIGN(Work work, group->all_reduce(view_of(std::span(&most, 1)), ReduceOp::kMax));
  GW_TRY(work.wait());
  return most > 0;
}

Status GroupConsensus::start_mean(std::span<double> values, Scope scope) {
  GW_CHECK(!mean_);
  if (values.empty()) return {};
  GW_ASSIGN(Communicator* const group, groups_.group(mesh_scope(scope)));
  sent_.emplace(values, word_for(scope));
  mean_ranks_ = group->size();
  GW_ASSIGN(Work work, fold(*group, sent_->all(), ReduceOp::kMean));
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
