#include <algorithm>

#include "base/text.h"
#include "planner/mesh/mesh_search.h"

namespace gradwire {
namespace {

std::vector<PipelineSpec> orders_of(bool allow_stale) {
  std::vector<PipelineSpec> orders{
      {.kind = PipelineKind::kGpipe},
      {.kind = PipelineKind::kOneFOneB},
      {.kind = PipelineKind::kInterleaved, .chunks = 2},
      {.kind = PipelineKind::kInterleaved, .chunks = 4},
      {.kind = PipelineKind::kZeroBubbleH1},
      {.kind = PipelineKind::kZeroBubbleV},
      {.kind = PipelineKind::kZeroBubbleVHalf},
      {.kind = PipelineKind::kZeroBubbleVMin},
      {.kind = PipelineKind::kBreadthFirst, .chunks = 2},
      {.kind = PipelineKind::kBreadthFirst, .chunks = 4},
      {.kind = PipelineKind::kChimera},
  };
  if (allow_stale) {
    orders.push_back({.kind = PipelineKind::kPipeDream});
    orders.push_back({.kind = PipelineKind::kPipeDream2BW});
  }
  return orders;
}

class ChoicesOf {
 public:
  explicit ChoicesOf(const MeshProblem& problem) : problem_(problem) {}

  Result<MeshChoices> all() {
    GW_TRY(check_cluster(*problem_.cluster));
    if (problem_.batch < 1) {
      return Status(Code::kInvalidArgument, format("batch of %lld samples (expected 1 or more)",
                                                   static_cast<long long>(problem_.batch)));
    }
    const int devices = problem_.cluster->devices();
    for (MeshChoice mesh; mesh.tp <= devices; ++mesh.tp) {
      if (devices % mesh.tp != 0) continue;
      if (!serves_tensors(mesh.tp)) continue;
      for (mesh.pp = 1; mesh.pp <= devices / mesh.tp; ++mesh.pp) {
        if (devices / mesh.tp % mesh.pp != 0) continue;
        mesh.dp = devices / mesh.tp / mesh.pp;
        GW_TRY(add_mesh(mesh));
      }
    }
    return std::move(found_);
  }

 private:
  void leave_out(const std::string& why, std::int64_t count = 1) { found_.left_out[why] += count; }

  bool serves_tensors(int tp) {
    if (tp == 1) return true;
    const bool serves = problem_.shares_tensors && problem_.model->part(tp, true).has_value();
    if (!serves) leave_out("the model's tensors do not divide among tp ranks");
    return serves;
  }

  Status add_mesh(const MeshChoice& mesh) {
    if (problem_.batch % mesh.dp != 0) {
      leave_out("the batch does not divide among dp replicas");
      return {};
    }
    if (mesh.pp == 1) return add_orders(mesh, {PipelineSpec{}});
    std::vector<PipelineSpec> served;
    for (const PipelineSpec& order : orders_of(problem_.allow_stale)) {
      MeshChoice staged = mesh;
      staged.order = order;
      if (order.kind == PipelineKind::kChimera && mesh.pp % 2 != 0) continue;
      if (!problem_.model->cuts(staged.stages(), staged.has_flush()).has_value()) {
        leave_out("more stages than layers with parameters");
        continue;
      }
      served.push_back(order);
    }
    return add_orders(mesh, served);
  }

  Status add_orders(MeshChoice mesh, const std::vector<PipelineSpec>& orders) {
    constexpr std::int64_t kMostMicroBatches = 4096;
    const std::int64_t samples = problem_.batch / mesh.dp;
    for (std::int64_t micro = 1; micro <= std::min(samples, kMostMicroBatches); ++micro) {
      if (samples % micro != 0) continue;
      mesh.accumulate = static_cast<int>(micro);
      mesh.micro_batch = samples / micro;
      for (const PipelineSpec& order : orders) {
        mesh.order = order;
        if (!serves(mesh)) {
          leave_out("the schedule does not serve so many micro-batches");
          continue;
        }
        add_rest(mesh);
      }
    }
    return {};
  }

  static bool serves(const MeshChoice& mesh) {
    if (mesh.pp == 1) return true;
    switch (mesh.order.kind) {
      case PipelineKind::kChimera: return mesh.accumulate % 2 == 0;
      case PipelineKind::kPipeDream: return mesh.accumulate == 1;
      case PipelineKind::kPipeDream2BW: return mesh.accumulate >= mesh.pp;
      case PipelineKind::kInterleaved: return mesh.accumulate % mesh.pp == 0;
      default: return true;
    }
  }

  void add_rest(MeshChoice mesh) {
    const bool sharded = mesh.dp * mesh.pipes() > 1;
    const int most = !sharded ? 0 : mesh.pipes() == 1 && mesh.has_flush() ? 3 : 1;
    for (const char* recompute : {"none", "selective", "full"}) {
      mesh.recompute = recompute;
      for (mesh.zero = 0; mesh.zero <= most; ++mesh.zero) {
        for (const std::string& compressor : problem_.compressors) {
          mesh.compressor = compressor;
          const bool coded = compressor != "none";
          if (coded && (mesh.zero > 0 || !sharded)) continue;
          found_.all.push_back(mesh);
        }
      }
    }
  }

  const MeshProblem& problem_;
  MeshChoices found_;
};

}  // namespace

Result<MeshChoices> mesh_choices(const MeshProblem& problem) { return ChoicesOf(problem).all(); }

std::vector<MeshChoice> mesh_neighbours(const std::vector<MeshChoice>& choices,
                                        const MeshChoice& choice) {
  std::vector<MeshChoice> near;
  for (const MeshChoice& other : choices) {
    const int axes = (other.dp != choice.dp ? 1 : 0) + (other.tp != choice.tp ? 1 : 0) +
                     (other.pp != choice.pp ? 1 : 0);
    // What has no pipeline has no order; replicas change how many samples a micro-batch has.
    const bool reordered = other.pp > 1 && choice.pp > 1 && !(other.order == choice.order);
    const bool divided = axes == 0 && other.accumulate != choice.accumulate;
    const int factors = (axes > 0 ? 1 : 0) + (reordered ? 1 : 0) + (divided ? 1 : 0) +
                        (other.zero != choice.zero ? 1 : 0) +
                        (other.recompute != choice.recompute ? 1 : 0) +
                        (other.compressor != choice.compressor ? 1 : 0);
    if (factors == 1 && axes <= 2) near.push_back(other);
  }
  return near;
}

}  // namespace gradwire
