// The model that a mesh divides, and its parts, each made once.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gradwire/status.h"
#include "gradwire/tensor.h"
#include "planner/profile/profile.h"
#include "trainer/model.h"
#include "trainer/tensor_share.h"

namespace gradwire {

// An exchange of a layer among the ranks that share its tensors, for each micro-batch.
struct MeshSum {
  bool back = false;        // on the way back, else forward
  bool half = false;        // a gather, or a sum of which each rank gets its part; else a whole sum
  double elems = 0;         // of a sample, over all ranks, as fp32
  std::int64_t beside = 0;  // products of a sample that are computed while it is under way
};

struct MeshTensor {
  std::string name;
  Shape shape;  // of what is here
};

// Of one layer, a sample's, on the rank of tp that has the longest parts.
struct MeshLayerWork {
  LayerCost macs = {};
  std::int64_t again = 0;    // products of what is computed again on the way back
  int times_again = 0;       // how often it is
  ProfiledLayer whole = {};  // the undivided layer's shape
  // Behind the last layer: what a pass does besides layers.
  std::optional<ProfiledLayer> loss = std::nullopt;
  double rows = 1;                       // share of a micro-batch's samples that is here
  std::vector<MeshTensor> tensors = {};  // its parameters, without those that it is tied to
  double parameters = 0;                 // their elements
  // Of those that each rank has as a whole, with a part of the data: gradients are added up among
  // the ranks of tp once a step.
  double summed = 0;
  double tied = 0;                // elements of the other layer's parameter that it computes with
  std::int64_t input_elems = 0;   // of the whole model
  std::int64_t output_elems = 0;  // likewise
  std::vector<MeshSum> sums = {};
};

// Shapes alone: any size may be asked about. Not thread-safe. What it gives is valid as long as it
// is.
class MeshModel {
 public:
  // `flush`: whether steps have ended before the next one begins, without which ends are not tied.
  using Make = std::function<Result<Model<float>>(const TensorShare& share, bool flush)>;
  explicit MeshModel(Make make) : make_(std::move(make)) {}

  // The part of the last of `tp` ranks that share tensors, which is the longest; of 1 the whole.
  // Errors are those of `make`.
  Result<const Model<float>*> part(int tp, bool flush);
  // The layers of each of so many stages, as runs cut them: `layers` each, where that says
  // something. Errors as plan_stages().
  Result<std::vector<LayerRange>> cuts(int stages, bool flush, const std::vector<int>& layers = {});
  // Of all layers, under a policy of activation checkpointing that goes stage by stage. Errors as
  // part(), cuts() and recompute_segments().
  Result<const std::vector<MeshLayerWork>*> work(int tp, bool flush, int stages,
                                                 const std::string& recompute,
                                                 const std::vector<int>& layers = {});

 private:
  Make make_;
  std::map<std::pair<int, bool>, std::unique_ptr<Result<Model<float>>>> parts_;
  std::map<std::tuple<int, bool, std::vector<int>>, std::vector<LayerRange>> cuts_;
  std::map<std::tuple<int, bool, int, std::string, std::vector<int>>, std::vector<MeshLayerWork>>
      works_;
};

}  // namespace gradwire
