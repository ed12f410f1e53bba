// The part of a model that one rank of a mesh holds, how its trainer comes by gradients, and what
// it exchanges for that with the ranks that hold the other parts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "adapters/trainer/mesh/mesh_groups.h"
#include "adapters/trainer/mesh/model_parts.h"
#include "adapters/trainer/pipeline/communicator_transfers.h"
#include "adapters/trainer/tensor/communicator_peers.h"
#include "adapters/trainer/traffic_bytes.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "trainer/model.h"
#include "trainer/pipeline/schedule.h"
#include "trainer/spans.h"
#include "trainer/stages/stage_plan.h"
#include "trainer/step/step_gradient_source.h"
#include "trainer/training_options.h"

namespace gradwire {

struct RankModelOptions {
  // The model as each rank of Scope::kTensor has it, with all layers; none: one rank has it.
  std::vector<Model<float>> shared = {};
  // Of the mesh's pp ranks, valid, without transfers; none: one rank has all layers.
  std::optional<PipelineSchedule> schedule = {};
  // In its place, without a flush; over tagged links.
  std::optional<StreamRule> stream_rule = {};
  // As plan_stages() has it, for strategies that bring parameters (Demands::layer_by_layer).
  bool gathers = false;
  // What the rank computes on. On a device messages between stages, and sums among ranks that share
  // tensors, are of its memory, and by NCCL the links between stages are ordered.
  Stream stream = {};
};

// From the thread that trains. Stays where it is: what it gives away refers to it.
class RankModel {
 public:
  // `whole`, the undivided model, `groups` and the stream are borrowed for the object's life.
  // Collective over the rank's groups of the scopes model, pp, tp and, where the ends of stages are
  // tied, embed. Errors as plan_stages() and CommunicatorTransfers::create(). kUnsupported: samples
  // or tiles that ranks divide, in stages or on a GPU.
  static Result<std::unique_ptr<RankModel>> create(const Model<float>& whole,
                                                   const RankModelOptions& options,
                                                   MeshGroups& groups);
  RankModel(const RankModel&) = delete;
  RankModel& operator=(const RankModel&) = delete;

  // What the rank's trainer is made for, by source() and with what use_in() says.
  const Model<float>& model() const { return parts_.model(); }
  SourceChoice source();
  void use_in(TrainingOptions& options);

  const ModelParts& parts() const { return parts_; }
  // Whether other ranks hold other parts.
  bool divides() const { return stages_ != nullptr || peers_.has_value(); }
  // Null: all layers are here.
  const StagePlan* plan() const { return stages_ == nullptr ? nullptr : &stages_->plan; }
  // What this rank has sent to the others since it began: activations and their gradients, and
  // gradients of tied parameters.
  TrafficBytes traffic_bytes() const;
  // Told of exchanges among the ranks that share tensors, for this object's life; null: nobody is.
  void tell(const OnTrainerSpan* told);

 private:
  struct Stages {
    StagePlan plan;
    CommunicatorTransfers transfers;
    Communicator* ends = nullptr;  // of the first and the last rank, where these share parameters
    std::uint64_t tied_bytes = 0;  // sent
  };
  RankModel(std::unique_ptr<Stages> stages, ModelParts parts, const Stream& stream)
      : stages_(std::move(stages)), parts_(std::move(parts)), stream_(stream) {}
  static Result<std::unique_ptr<Stages>> make_stages(const Model<float>& whole,
                                                     const RankModelOptions& options,
                                                     MeshGroups& groups);
  Status add_tied(const TensorView& sum);

  std::unique_ptr<Stages> stages_;  // null: all layers are here
  ModelParts parts_;
  std::optional<CommunicatorPeers> peers_;
  Stream stream_;
};

}  // namespace gradwire
