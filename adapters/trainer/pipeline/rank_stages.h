// The stages of a model that one rank of a mesh holds: its part of the model, how its trainer comes
// by gradients, and the whole model again where a run ends.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "adapters/trainer/mesh/mesh_groups.h"
#include "adapters/trainer/pipeline/communicator_transfers.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "trainer/model.h"
#include "trainer/model_share.h"
#include "trainer/pipeline/schedule.h"
#include "trainer/stages/stage_plan.h"
#include "trainer/step/step_gradient_source.h"

namespace gradwire {

// All parameters and running statistics of a model, in its order.
struct WholeModel {
  std::vector<float> parameters = {};
  std::vector<float> buffers = {};
  // Views of both.
  std::vector<NamedTensor> tensors = {};
};

// From the thread that trains. Stays where it is: what it gives away refers to it.
class RankStages {
 public:
  // `schedule`: valid, without transfers, for the mesh's pp ranks. `whole` and `groups` are
  // borrowed for the object's life. gathers: as plan_stages() has it, for strategies that bring
  // parameters (Demands::layer_by_layer). `stream`: what the rank computes on, borrowed, too; on a
  // device messages between stages are its memory, and by NCCL their links are ordered. Collective
  // over the rank's groups of the scopes pp and, where the model's ends are tied, embed. Errors as
  // plan_stages() and CommunicatorTransfers::create().
  static Result<std::unique_ptr<RankStages>> create(const Model<float>& whole,
                                                    const PipelineSchedule& schedule,
                                                    MeshGroups& groups, bool gathers = false,
                                                    const Stream& stream = {});
  RankStages(const RankStages&) = delete;
  RankStages& operator=(const RankStages&) = delete;

  // This rank's layers, which its trainer is made for, by source().
  const Model<float>& model() const { return part_; }
  SourceChoice source();
  const StagePlan& plan() const { return plan_; }
  // Who holds what of the model.
  const ModelShare& share() const { return share_; }

  // Memory for all of the model.
  WholeModel whole_model() const;
  // Collective over all ranks of `world`, the mesh's: parameters and running statistics of model()
  // become those of `whole`, which is rank 0's; the others' is not looked at. `own`: of model().
  Status spread(Communicator& world, const WholeModel& whole,
                std::span<const NamedTensor> own) const;
  // What this rank has sent to other stages since it began: activations and their gradients, and
  // gradients of tied parameters.
  TrafficBytes traffic_bytes() const;

  // Collective over the group: the first of its ranks has the whole model, the others nothing.
  // `own`: parameters and running statistics of model(), as a trainer has them, in fp32 or 16 bits.
  Result<WholeModel> gather(std::span<const NamedTensor> own);

 private:
  RankStages(const Model<float>& whole, Communicator& group, Communicator* ends, StagePlan plan,
             CommunicatorTransfers transfers, const Stream& stream)
      : whole_(whole),
        group_(group),
        ends_(ends),
        plan_(std::move(plan)),
        share_(share_of_stages(whole, plan_)),
        part_(whole.part(plan_.layers())),
        transfers_(std::move(transfers)),
        stream_(stream) {}
  Model<float> part_of(int rank) const;

  const Model<float>& whole_;
  Communicator& group_;
  Communicator* ends_;  // of the first and the last rank, where these share parameters
  StagePlan plan_;
  ModelShare share_;
  Model<float> part_;
  CommunicatorTransfers transfers_;
  Stream stream_;
  std::uint64_t tied_bytes_ = 0;  // sent
};

}  // namespace gradwire
