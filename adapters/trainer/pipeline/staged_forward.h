// One sample through a model whose layers are divided among the ranks of a group: forward alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "gradwire/communicator.h"
#include "gradwire/status.h"
#include "trainer/model.h"
#include "trainer/stages/pipeline_stage.h"

namespace gradwire {

// From one thread. All memory is taken at birth.
class StagedForward {
 public:
  // Group rank r holds stage r, cut as for training (plan_stages()); the only rank of a group all
  // layers. Both are borrowed for the object's life. Parameters are zero. Errors as plan_stages().
  static Result<std::unique_ptr<StagedForward>> create(const Model<float>& whole,
                                                       Communicator& group);
  StagedForward(const StagedForward&) = delete;
  StagedForward& operator=(const StagedForward&) = delete;

  // This rank's layers, and their parameters, which the caller writes.
  const Model<float>& model() const { return part_ ? *part_ : whole_; }
  std::span<float> parameters() { return parameters_; }

  // Collective. `inputs`: of one sample of the whole model, on the first rank. Returns its outputs
  // on the last one, valid until the next call; nothing on the others.
  Result<std::span<const float>> run(std::span<const float> inputs);

 private:
  StagedForward(const Model<float>& whole, Communicator& group) : whole_(whole), group_(group) {}

  const Model<float>& whole_;
  Communicator& group_;
  std::optional<Model<float>> part_;  // none where all of it is here
  std::vector<float> parameters_;
  std::optional<PipelineStage> stage_;
  int before_ = -1;  // ranks that hold the stage before and the next one; -1: there is none
  int next_ = -1;
};

}  // namespace gradwire
