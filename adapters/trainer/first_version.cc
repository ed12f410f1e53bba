#include "adapters/trainer/first_version.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "gradwire/schedule.h"

namespace gradwire {
namespace {

using SavedTensors = std::map<std::string, CheckpointTensor>;

constexpr std::string_view kOldRank = "rank-";
constexpr std::string_view kOldHook = "/hook/";
constexpr std::string_view kOldTrainer = "trainer/";
constexpr std::string_view kOldShard = ".shard";
constexpr std::string_view kOldReduced = "reduce/";
constexpr std::string_view kOldGathered = "gather/";
constexpr const char* kOldSteps = "sharded.steps";

// Where an old tensor is now; what it holds is elements `part` of a parameter's `shape`, where one
// is given.
struct PresentPlace {
  std::string name;  // empty: nowhere, it is another's copy
  const Shape* shape = nullptr;
  Range part = {};
};

class PresentNames {
 public:
  explicit PresentNames(const CheckpointManifest& manifest)
      : tensors_(manifest.tensors), replicas_(manifest.position.mesh.dp) {
    const auto has = [&](const char* name) {
      return tensors_.contains("rank-0/hook/" + std::string(name));
    };
    sharded_ = has(kOldSteps);
    replicated_ = has("aggregator.step");
  }

  SavedTensors renamed() const {
    SavedTensors present;
    for (const auto& [name, tensor] : tensors_) {
      const PresentPlace place = place_of(name, tensor);
      if (place.name.empty()) continue;
      CheckpointTensor& at = present[place.name];
      if (place.shape == nullptr) {
        at = tensor;
      } else {
        add(at, tensor, place);
      }
    }
    for (auto& [name, tensor] : present) put_in_order(tensor);
    return present;
  }

 private:
  static void add(CheckpointTensor& at, const CheckpointTensor& tensor, const PresentPlace& place) {
    at.dtype = tensor.dtype;
    at.shape = at.grid = *place.shape;
    for (CheckpointSlice slice : tensor.slices) {
      slice.at = TensorBox::of(at.shape).at;
      slice.begin += place.part.begin;
      slice.end += place.part.begin;
      at.slices.push_back(std::move(slice));
    }
  }

  // The files of ranks 10 and above come between those of 1 and 2.
  static void put_in_order(CheckpointTensor& tensor) {
    std::ranges::stable_sort(tensor.slices, {}, &CheckpointSlice::begin);
    if (tensor.shape.elems() == 0) return;
    std::erase_if(tensor.slices, [](const CheckpointSlice& s) { return s.begin == s.end; });
  }

  // Of "NAME.KIND"; nullptr if NAME is no parameter.
  const Shape* parameter_shape(const std::string& name) const {
    const auto found = tensors_.find("parameters/" + name.substr(0, name.rfind('.')));
    return found == tensors_.end() ? nullptr : &found->second.shape;
  }

  PresentPlace place_of(const std::string& name, const CheckpointTensor& tensor) const {
    const std::int64_t elems = tensor.shape.elems();
    if (name.starts_with(kOldTrainer)) {
      const std::string own = name.substr(kOldTrainer.size());
      const Shape* shape = parameter_shape(own);
      if (shape == nullptr || shape->elems() != elems) return {name};
      return {"optimizer/" + own, shape, {0, elems}};
    }
    const std::size_t hook = name.find(kOldHook);
    if (!name.starts_with(kOldRank) || hook == std::string::npos) return {name};
    const auto rank =
        to_int(std::string_view(name).substr(kOldRank.size(), hook - kOldRank.size()));
    if (!rank || *rank < 0 || *rank >= replicas_) return {name};
    const std::string own = name.substr(hook + kOldHook.size());
    const std::string replica = "dp-" + std::to_string(*rank);
    if (sharded_) return sharded_place(name, own, static_cast<int>(*rank), elems);
    return {replicated_ ? replica + "/gradients/" + own : name};
  }

  PresentPlace sharded_place(const std::string& name, const std::string& own, int rank,
                             std::int64_t elems) const {
    const std::string replica = "dp-" + std::to_string(rank);
    if (own == kOldSteps) return {rank == 0 ? "optimizer/steps" : ""};
    if (own.starts_with(kOldReduced)) {
      return {replica + "/gradients/" + own.substr(kOldReduced.size())};
    }
    if (own.starts_with(kOldGathered)) {
      return {replica + "/parameters/" + own.substr(kOldGathered.size())};
    }
    const Shape* shape = parameter_shape(own);
    if (shape == nullptr) return {name};
    const Range part = piece(shape->elems(), replicas_, rank);
    if (part.size() != elems) return {name};
    if (!own.ends_with(kOldShard)) return {"optimizer/" + own, shape, part};
    return {"master/" + own.substr(0, own.size() - kOldShard.size()), shape, part};
  }

  const SavedTensors& tensors_;
  int replicas_;
  bool sharded_ = false;
  bool replicated_ = false;
};

}  // namespace

CheckpointManifest with_present_names(CheckpointManifest manifest) {
  if (manifest.version == 1) manifest.tensors = PresentNames(manifest).renamed();
  return manifest;
}

}  // namespace gradwire
