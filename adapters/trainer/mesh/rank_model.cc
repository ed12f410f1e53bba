#include "adapters/trainer/mesh/rank_model.h"

#include <string>

#include "base/text.h"
#include "trainer/stages/stage_source.h"

namespace gradwire {

// Stages are cut by the whole model's costs: those of shared tensors differ from rank to rank where
// they do not divide evenly, and all ranks must cut alike.
Result<std::unique_ptr<RankModel::Stages>> RankModel::make_stages(const Model<float>& whole,
                                                                  const RankModelOptions& options,
                                                                  MeshGroups& groups) {
  GW_ASSIGN(Communicator* const group, groups.group(MeshScope::kPp));
  const PipelineLinks links = links_of(*group, options.stream.device);
  if (options.stream_rule && links != PipelineLinks::kTagged) {
    return Status(Code::kUnsupported,
                  "stages without a flush by NCCL (expected messages that have tags)");
  }
  GW_ASSIGN(StagePlan plan, options.stream_rule
                                ? plan_stream(whole, *options.stream_rule, group->rank())
                                : plan_stages(whole, *options.schedule, group->rank(),
                                              {.links = links}, options.gathers));
  GW_ASSIGN(CommunicatorTransfers transfers,
            CommunicatorTransfers::create(*group, plan.schedule, links, options.stream));
  const int last = plan.schedule.stages() - 1;
  const bool is_end = plan.stages.front().stage == 0 || plan.stages.back().stage == last;
  Communicator* ends = nullptr;
  if (!plan.shared.empty() && is_end) {
    GW_ASSIGN(ends, groups.group(MeshScope::kEmbed));
  }
  return std::make_unique<Stages>(Stages{std::move(plan), std::move(transfers), ends});
}

Result<std::unique_ptr<RankModel>> RankModel::create(const Model<float>& whole,
                                                     const RankModelOptions& options,
                                                     MeshGroups& groups) {
  // Stages are cut by the whole model's layers, and what divides images has no kernels.
  const bool divides_data = !options.shared.empty() && options.shared.front().divides_data();
  if (divides_data && options.stream.device.space != MemorySpace::kHost) {
    return Status(Code::kUnsupported,
                  "samples or tiles that ranks divide on a GPU (expected the CPU)");
  }
  const bool in_stages = options.schedule || options.stream_rule;
  if (divides_data && in_stages) {
    const std::string got = options.schedule
                                ? format("a schedule of %d ranks", options.schedule->size())
                                : std::string("a stream without a flush");
    return Status(
        Code::kUnsupported,
        format("stages of a model whose data ranks divide (got %s, expected pp=1)", got.c_str()));
  }
  std::unique_ptr<Stages> stages;
  ModelDivision division{.shared = options.shared};
  if (in_stages) {
    GW_ASSIGN(stages, make_stages(whole, options, groups));
    division.layers = layers_by_rank(stages->plan);
  }
  GW_ASSIGN(ModelParts parts, ModelParts::create(whole, division, groups));
  std::unique_ptr<RankModel> made(
      new RankModel(std::move(stages), std::move(parts), options.stream));
  if (!options.shared.empty()) {
    GW_ASSIGN(Communicator* const group, groups.group(MeshScope::kTp));
    made->peers_.emplace(*group, options.stream);
  }
  return made;
}

Status RankModel::add_tied(const TensorView& sum) {
  const OpOptions behind{.deadline = {}, .stream = stream_};
  GW_ASSIGN(Work work, stages_->ends->all_reduce(sum, ReduceOp::kSum, behind));
  stages_->tied_bytes += sum.bytes().size();  // between two ranks
  return work.wait().with_context("tied parameters");
}

SourceChoice RankModel::source() {
  if (stages_ == nullptr) return {};
  return {[this](const SourceParts& parts) {
            return StageSource::create(parts, stages_->plan, stages_->transfers,
                                       [this](const TensorView& sum) { return add_tied(sum); });
          },
          stages_->plan.at_a_time};
}

void RankModel::use_in(TrainingOptions& options) {
  if (divides()) options.share = &parts_.share();
  if (peers_) options.peers = &*peers_;
}

TrafficBytes RankModel::traffic_bytes() const {
  TrafficBytes all{};
  if (stages_ != nullptr) {
    all = stages_->transfers.sent();
    bytes_of(all, TrafficClass::kGradients) += stages_->tied_bytes;
  }
  if (peers_) bytes_of(all, TrafficClass::kActivations) += peers_->bytes_sent();
  return all;
}

void RankModel::tell(const OnTrainerSpan* told) {
  if (peers_) peers_->tell(told);
}

}  // namespace gradwire
