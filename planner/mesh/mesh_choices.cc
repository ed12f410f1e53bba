#include <algorithm>

#include "base/text.h"
#include "planner/mesh/mesh_search.h"
#include "planner/mesh/timed_stages.h"

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

std::int64_t divisors_above(std::int64_t number, std::int64_t least) {
  std::int64_t count = 0;
  for (std::int64_t one = 1; one * one <= number; ++one) {
    if (number % one != 0) continue;
    if (one > least) ++count;
    if (number / one != one && number / one > least) ++count;
  }
  return count;
}

class ChoicesOf {
 public:
  ChoicesOf(const MeshProblem& problem, const MeshProgress& progress)
      : problem_(problem),
        progress_(progress),
        orders_(problem.orders.empty() ? orders_of(problem.allow_stale) : problem.orders),
        timed_(problem) {}

  Result<MeshChoices> all() {
    GW_TRY(check_cluster(*problem_.cluster));
    GW_TRY(check_batch());
    const int devices = problem_.cluster->devices();
    std::int64_t all = 0;
    for (int tp = 1; tp <= devices; ++tp) {
      if (devices % tp == 0) all += divisors_above(devices / tp, 0);
    }
    std::int64_t done = 0;
    for (MeshChoice mesh{.layout = problem_.layout}; mesh.tp <= devices; ++mesh.tp) {
      if (devices % mesh.tp != 0) continue;
      if (!serves_tensors(mesh.tp)) {
        done += divisors_above(devices / mesh.tp, 0);
        continue;
      }
      for (mesh.pp = 1; mesh.pp <= devices / mesh.tp; ++mesh.pp) {
        if (devices / mesh.tp % mesh.pp != 0) continue;
        mesh.dp = devices / mesh.tp / mesh.pp;
        GW_TRY(add_mesh(mesh));
        tell(++done, all);
      }
    }
    tell(all, all);
    return std::move(found_);
  }

 private:
  // Times are whole nanoseconds of whole products.
  Status check_batch() const {
    constexpr std::int64_t kMost = std::int64_t{1} << 31;
    if (problem_.batch < 1 || problem_.batch > kMost) {
      return {Code::kInvalidArgument, format("batch of %lld samples (expected 1 to 2^31)",
                                             static_cast<long long>(problem_.batch))};
    }
    GW_ASSIGN(const auto* const work, problem_.model->work(1, true, 1, "full"));
    double macs = 0;
    for (const MeshLayerWork& one : *work) {
      macs += static_cast<double>(one.macs.forward_macs + one.again) +
              static_cast<double>(one.macs.input_macs + one.macs.weight_macs);
    }
    macs *= static_cast<double>(problem_.batch);
    if (macs <= 0x1p62) return {};
    return {Code::kInvalidArgument,
            format("batch of %lld samples: %.3g multiplications a step (expected at most 2^62)",
                   static_cast<long long>(problem_.batch), macs)};
  }

  void tell(std::int64_t done, std::int64_t all) const {
    if (progress_) progress_({MeshSearchPart::kListed, done, all});
  }

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
    if (mesh.tp > 1 && by_samples()) {
      leave_out("no pipeline of ranks that divide images");
      return {};
    }
    std::vector<PipelineSpec> served;
    for (const PipelineSpec& order : orders_) {
      MeshChoice staged = mesh;
      staged.order = order;
      if (order.kind == PipelineKind::kChimera && mesh.pp % 2 != 0) {
        leave_out("chimera on an odd number of ranks");
        continue;
      }
      if (const char* refused = refused_without_flush(staged); refused != nullptr) {
        leave_out(refused);
        continue;
      }
      if (!problem_.model->cuts(staged.stages(), staged.has_flush(), order.layers).has_value()) {
        leave_out("more stages than layers with parameters");
        continue;
      }
      served.push_back(order);
    }
    return add_orders(mesh, served);
  }

  // As apps/train/parallel/unserved.cc; null: nothing.
  const char* refused_without_flush(const MeshChoice& mesh) const {
    if (mesh.has_flush()) return nullptr;
    if (problem_.precision == Precision::kF16) return "fp16 without a flush";
    return problem_.optimizer == "lamb" ? "lamb without a flush" : nullptr;
  }

  Status add_orders(MeshChoice mesh, const std::vector<PipelineSpec>& orders) {
    constexpr std::int64_t kMostMicroBatches = 4096;
    const std::int64_t samples = problem_.batch / mesh.dp;
    for (std::int64_t micro = 1; micro <= std::min(samples, kMostMicroBatches); ++micro) {
      if (samples % micro != 0) continue;
      if (mesh.tp > 1 && by_samples() && samples / micro % mesh.tp != 0) {
        leave_out("a micro-batch does not divide among tp ranks");
        continue;
      }
      mesh.accumulate = static_cast<int>(micro);
      mesh.micro_batch = samples / micro;
      for (const PipelineSpec& order : orders) {
        mesh.order = order;
        if (!serves(mesh)) {
          leave_out("the schedule does not serve so many micro-batches");
          continue;
        }
        GW_TRY(add_rest(mesh));
      }
    }
    const std::int64_t more = divisors_above(samples, kMostMicroBatches);
    if (more > 0) leave_out("more than 4,096 micro-batches", more);
    return {};
  }

  bool by_samples() const { return problem_.layout == "hybrid"; }

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

  Status add_rest(MeshChoice mesh) {
    for (const char* recompute : {"none", "selective", "full"}) {
      mesh.recompute = recompute;
      add_exchanges(mesh);
      if (!problem_.cuts_stages || mesh.pp == 1 || !mesh.order.layers.empty()) continue;
      // Of backwards in two halves runs compute nothing again.
      if (splits_backward(mesh.order.kind) && mesh.recompute != "none") continue;
      GW_ASSIGN(const TimedStages::Divisions divisions, timed_.of(mesh));
      for (const std::vector<int>& layers : divisions) {
        MeshChoice timed = mesh;
        timed.order.layers = layers;
        add_exchanges(timed);
      }
    }
    return {};
  }

  void add_exchanges(MeshChoice mesh) {
    const bool sharded = mesh.dp * mesh.pipes() > 1;
    const int most = !sharded ? 0 : mesh.pipes() == 1 && mesh.has_flush() ? 3 : 1;
    for (mesh.zero = 0; mesh.zero <= most; ++mesh.zero) {
      for (const std::string& compressor : problem_.compressors) {
        mesh.compressor = compressor;
        const bool coded = compressor != "none";
        if (coded && mesh.zero > 0) {
          leave_out("ZeRO stages of compressed gradients");
          continue;
        }
        // Without replicas it changes nothing: once is enough.
        if (coded && !sharded && &compressor != &problem_.compressors.front()) continue;
        found_.all.push_back(mesh);
      }
    }
  }

  const MeshProblem& problem_;
  const MeshProgress& progress_;
  std::vector<PipelineSpec> orders_;
  TimedStages timed_;
  MeshChoices found_;
};

}  // namespace

Result<MeshChoices> mesh_choices(const MeshProblem& problem, const MeshProgress& progress) {
  return ChoicesOf(problem, progress).all();
}

namespace {

PipelineSpec without_layers(PipelineSpec order) {
  order.layers.clear();
  return order;
}

}  // namespace

std::vector<MeshChoice> mesh_neighbours(const std::vector<MeshChoice>& choices,
                                        const MeshChoice& choice) {
  std::vector<MeshChoice> near;
  for (const MeshChoice& other : choices) {
    const int axes = (other.dp != choice.dp ? 1 : 0) + (other.tp != choice.tp ? 1 : 0) +
                     (other.pp != choice.pp ? 1 : 0);
    // What has no pipeline has no order; replicas change how many samples a micro-batch has.
    const bool staged = other.pp > 1 && choice.pp > 1;
    const bool reordered = staged && without_layers(other.order) != without_layers(choice.order);
    // Another number of stages, or of samples, is cut otherwise.
    const bool recut = axes == 0 && staged && !reordered && other.accumulate == choice.accumulate &&
                       other.recompute == choice.recompute &&
                       other.order.layers != choice.order.layers;
    const bool divided = axes == 0 && other.accumulate != choice.accumulate;
    const int factors = (axes > 0 ? 1 : 0) + (reordered ? 1 : 0) + (recut ? 1 : 0) +
                        (divided ? 1 : 0) + (other.zero != choice.zero ? 1 : 0) +
                        (other.recompute != choice.recompute ? 1 : 0) +
                        (other.compressor != choice.compressor ? 1 : 0);
    if (factors == 1 && axes <= 2) near.push_back(other);
  }
  return near;
}

}  // namespace gradwire
