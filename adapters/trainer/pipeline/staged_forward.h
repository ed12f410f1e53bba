// One sample through a model whose layers and tensors are divided among ranks: forward alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "adapters/trainer/mesh/mesh_groups.h"
#include "adapters/trainer/tensor/communicator_peers.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"
#include "trainer/model.h"
#include "trainer/stages/pipeline_stage.h"

namespace gradwire {

// From one thread. All memory is taken at birth.
class StagedForward {
 public:
  // Ranks of Scope::kPipeline hold stages in their order, cut as for training (plan_stages()); the
  // only one all layers. `shared`: the model as this rank of Scope::kTensor has it, with all
  // layers; `whole` itself where one rank has it. All are borrowed for the object's life.
  // Collective over the rank's groups of both scopes. Parameters are zero. kInvalidArgument where
  // the ranks of kTensor are not as many as share the model; else errors as plan_stages().
  static Result<std::unique_ptr<StagedForward>> create(const Model<float>& whole,
                                                       const Model<float>& shared,
                                                       MeshGroups& groups);
  StagedForward(const StagedForward&) = delete;
  StagedForward& operator=(const StagedForward&) = delete;

  // This rank's layers, and their parameters, which the caller writes.
  const Model<float>& model() const { return part_ ? *part_ : shared_; }
  std::span<float> parameters() { return parameters_; }

  // Collective. `inputs`: of one sample, on the ranks of the first stage. Returns, on those of the
  // last one, the outputs of label `label` of the sample's `labels`, of all classes: where ranks
  // divide these, this row alone is gathered, and is the same bits on all of them. Valid until the
  // next call; nothing on the others.
  Result<std::span<const float>> run(std::span<const float> inputs, std::int64_t label,
                                     std::int64_t labels);

 private:
  StagedForward(const Model<float>& shared, Communicator& pipeline)
      : shared_(shared), pipeline_(pipeline) {}
  Result<std::span<const float>> all_classes(std::span<const float> here);

  const Model<float>& shared_;
  Communicator& pipeline_;
  std::optional<Model<float>> part_;  // none where all layers are here
  std::vector<float> parameters_;
  std::optional<PipelineStage> stage_;
  int before_ = -1;  // ranks that hold the stage before and the next one; -1: there is none
  int next_ = -1;
  std::optional<CommunicatorPeers> peers_;  // of a shared model
  // Where they divide the classes: as many for each rank, and one behind another.
  std::vector<float> mine_;
  std::vector<float> gathered_;
  std::vector<float> row_;
};

}  // namespace gradwire
