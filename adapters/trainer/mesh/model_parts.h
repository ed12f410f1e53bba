// The parts of one model that the ranks of a replica hold, and the whole of it again where a run
// begins or ends.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "adapters/trainer/mesh/mesh_groups.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"
#include "trainer/model.h"
#include "trainer/model_share.h"

namespace gradwire {

// All parameters and running statistics of a model, in its order.
struct WholeModel {
  std::vector<float> parameters = {};
  std::vector<float> buffers = {};
  // Views of both.
  std::vector<NamedTensor> tensors = {};
};

// What divides a model: its layers among pipeline ranks, tensors among tensor ranks.
struct ModelDivision {
  // The model as each rank of Scope::kTensor has it, with all layers; none: as it is.
  std::vector<Model<float>> shared = {};
  // By rank of Scope::kPipeline; none: all layers are on the only one.
  std::vector<std::vector<LayerRange>> layers = {};
};

// One per rank, used from the thread that trains.
class ModelParts {
 public:
  // `whole`, the undivided model, and `groups` are borrowed for the object's life. The division is
  // that of the groups' mesh. Collective over the ranks of the scope model.
  static Result<ModelParts> create(const Model<float>& whole, const ModelDivision& division,
                                   MeshGroups& groups);

  // This rank's, which its trainer is made for.
  const Model<float>& model() const { return parts_[static_cast<std::size_t>(share_.rank)]; }
  // Who holds what of the model.
  const ModelShare& share() const { return share_; }

  // Memory for all of the model.
  WholeModel whole_model() const;
  // Collective over all ranks of `world`, the mesh's: parameters and running statistics of model()
  // become those of `whole`, which is rank 0's; the others' is not looked at. `own`: of model(), in
  // fp32.
  Status spread(Communicator& world, const WholeModel& whole,
                std::span<const NamedTensor> own) const;
  // Collective over the scope model: the first of its ranks has the whole model, the others
  // nothing. `own`: parameters and running statistics of model(), as a trainer has them, in fp32 or
  // 16 bits.
  Result<WholeModel> gather(std::span<const NamedTensor> own) const;

 private:
  ModelParts(const Model<float>& whole, Communicator* group) : whole_(&whole), group_(group) {}
  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  // What a rank of the group hands in, each element by the lowest rank that holds it; in the order
  // in which it is sent.
  std::vector<ParameterInfo> handed_by(int rank) const;

  const Model<float>* whole_;
  Communicator* group_;              // of the scope model; null: this rank holds all of it
  std::vector<Model<float>> parts_;  // by rank of the group
  ModelShare share_;
};

}  // namespace gradwire
