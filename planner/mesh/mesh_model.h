// The model that a mesh divides, and its parts, each made once.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gradwire/status.h"
#include "trainer/model.h"
#include "trainer/tensor_share.h"

namespace gradwire {

// Of one layer, a sample's, on the rank of tp that has the longest parts.
struct MeshLayerWork {
  LayerCost macs = {};
  std::int64_t again = 0;         // products of what is computed again on the way back
  double parameters = 0;          // elements, without those that it is tied to
  double tied = 0;                // elements of the other layer's parameter that it computes with
  std::int64_t input_elems = 0;   // of the whole model
  std::int64_t output_elems = 0;  // likewise
  bool half_of_block = false;     // attention or mlp with what flows around it
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
  // The layers of each of so many stages, as runs cut them. Errors as plan_stages().
  Result<std::vector<LayerRange>> cuts(int stages, bool flush);
  // Of all layers, under a policy of activation checkpointing that goes stage by stage. Errors as
  // part(), cuts() and recompute_segments().
  Result<const std::vector<MeshLayerWork>*> work(int tp, bool flush, int stages,
                                                 const std::string& recompute);

 private:
  Make make_;
  std::map<std::pair<int, bool>, std::unique_ptr<Result<Model<float>>>> parts_;
  std::map<std::pair<int, bool>, std::vector<LayerRange>> cuts_;
  std::map<std::tuple<int, bool, int, std::string>, std::vector<MeshLayerWork>> works_;
};

}  // namespace gradwire
