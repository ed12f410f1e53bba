#include "trainer/stages/stage_memory.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "trainer/activations.h"
#include "trainer/layer_walk.h"

namespace gradwire {
namespace {

constexpr auto kFloatBytes = static_cast<std::int64_t>(sizeof(float));

struct PlaceSizes {
  ActivationElems elems;
  std::int64_t input = 0;   // elements of a micro-batch
  std::int64_t output = 0;  // likewise
};

// As PipelineStage::create() lays it out.
Result<PlaceSizes> sizes_of(const Model<float>& part, const StagePlace& place, std::int64_t rows,
                            const std::string& recompute) {
  GW_ASSIGN(std::vector<Segment> segments, recompute_segments(recompute, part, place.here));
  if (place.split && !segments.empty()) {
    return Status(Code::kUnsupported,
                  "recompute '" + recompute + "' with a backward in two halves (expected none)");
  }
  const ActivationSizes sizes =
      part.activation_sizes(place.here, rows, std::move(segments), MemorySpace::kHost);
  const DeltaRoom room = place.split ? DeltaRoom::kEveryLevel : DeltaRoom::kTurns;
  return PlaceSizes{Activations<float>::elems(sizes, rows, room),
                    sizes.widths[place.here.begin] * rows, sizes.widths[place.here.end] * rows};
}

std::int64_t elems_of(const Model<float>& part, int index) {
  return part.parameters()[static_cast<std::size_t>(index)].shape.elems();
}

const StagePlace* place_of(const StagePlan& plan, const PipelineOp& op) {
  const auto at = std::ranges::find(plan.stages, static_cast<int>(op.stage), &StagePlace::stage);
  return at == plan.stages.end() ? nullptr : &*at;
}

const std::vector<PipelineOp>& own_ops(const StagePlan& plan) {
  return plan.schedule.ranks[static_cast<std::size_t>(plan.rank)];
}

// Those that give weights' gradients, of one step.
std::vector<PipelineOp> weight_ops(const StagePlan& plan) {
  std::vector<PipelineOp> ops = own_ops(plan);
  std::erase_if(ops, [&plan](const PipelineOp& op) {
    const bool later = plan.stream && op.micro >= plan.micro_batches();
    return later || !gives_weight_gradient(op.kind);
  });
  return ops;
}

// The sum takes each gradient's micro-batches one after another.
class Waiting {
 public:
  Waiting(const ParameterTable& gradients, int micro_batches, bool first_waits)
      : gradients_(gradients),
        first_waits_(first_waits),
        in_(gradients.size()),
        joined_(in_.size()) {
    for (std::vector<bool>& micros : in_) micros.resize(static_cast<std::size_t>(micro_batches));
  }
  void complete(int index, int micro) {
    std::vector<bool>& in = in_[static_cast<std::size_t>(index)];
    std::size_t& joined = joined_[static_cast<std::size_t>(index)];
    in[static_cast<std::size_t>(micro)] = true;
    change(index, micro, 1);
    for (; joined < in.size() && in[joined]; ++joined) change(index, static_cast<int>(joined), -1);
  }
  std::int64_t most() const { return most_; }

 private:
  void change(int index, int micro, int by) {
    if (micro == 0 && !first_waits_) return;
    now_ += by * gradients_[static_cast<std::size_t>(index)].shape.elems();
    most_ = std::max(most_, now_);
  }

  const ParameterTable& gradients_;
  bool first_waits_;
  std::vector<std::vector<bool>> in_;  // by gradient and micro-batch
  std::vector<std::size_t> joined_;    // by gradient
  std::int64_t now_ = 0;
  std::int64_t most_ = 0;
};

// Gradients of a stage's layers in the order in which they are complete: those of uses by tied
// layers have numbers behind the parameters'.
std::vector<int> gradients_of(const Model<float>& part, const StagePlace& place) {
  int use = static_cast<int>(part.parameters().size());
  for (std::size_t layer = 0; layer < place.here.end; ++layer) use += part.tied_to(layer) >= 0;
  std::vector<int> gradients;
  for (std::size_t layer = place.here.end; layer-- > place.here.begin;) {
    if (part.tied_to(layer) >= 0) gradients.push_back(--use);
    const auto [first, end] = part.parameters_of(layer);
    for (int index = end; index-- > first;) gradients.push_back(index);
  }
  return gradients;
}

}  // namespace

Result<std::int64_t> context_bytes(const Model<float>& part, const StagePlace& place,
                                   std::int64_t rows, const std::string& recompute) {
  GW_ASSIGN(const PlaceSizes sizes, sizes_of(part, place, rows, recompute));
  return kFloatBytes * sizes.elems.own;
}

Result<StageMemory> stage_memory(const Model<float>& part, const StagePlan& plan, std::int64_t rows,
                                 const std::string& recompute) {
  StageMemory memory;
  if (plan.stream) {
    memory.versions = kFloatBytes * (plan.stream->most_versions(plan.rank) - 1) *
                      parameter_elems(part.parameters());
  }
  for (const StagePlace& place : plan.stages) {
    GW_ASSIGN(const PlaceSizes sizes, sizes_of(part, place, rows, recompute));
    const StageRoom& room = place.room;
    memory.activations += kFloatBytes * static_cast<std::int64_t>(place.contexts) * sizes.elems.own;
    memory.workspace += kFloatBytes * sizes.elems.shared;
    memory.messages += kFloatBytes * ((room.activations_in + room.gradients_out) * sizes.input +
                                      (room.activations_out + room.gradients_in) * sizes.output);
  }
  return memory;
}

std::int64_t waiting_gradient_elems(const Model<float>& part, const StagePlan& plan,
                                    const FoldWays& ways) {
  const GradientTable gradients = part.gradients();
  if (ways.whole) {  // the first one's are the sum's
    return most_unjoined(weight_ops(plan), plan.stages.size(), plan.micro_batches(), 1) *
           gradients.elems();
  }
  Waiting waiting(gradients.tensors, plan.micro_batches(), ways.first_waits);
  for (const PipelineOp& op : weight_ops(plan)) {
    const StagePlace* const place = place_of(plan, op);
    if (place == nullptr) continue;
    const int micro = plan.number_in_pipe(op.micro);
    for (const int index : gradients_of(part, *place)) waiting.complete(index, micro);
  }
  return waiting.most();
}

std::int64_t gathered_stage_elems(const Model<float>& part, const StagePlan& plan) {
  std::map<int, int> readers;  // open layers, by parameter
  std::int64_t now = 0;
  std::int64_t most = 0;
  const auto change = [&](const StagePlace& place, int by) {
    for (std::size_t layer = place.here.begin; layer < place.here.end; ++layer) {
      const auto [first, end] = part.parameters_read_by(layer);
      for (int index = first; index < end; ++index) {
        int& open = readers[index];
        const bool was = open > 0;
        open += by;
        if (was != (open > 0)) now += by * elems_of(part, index);
      }
    }
    most = std::max(most, now);
  };
  for (const PipelineOp& op : own_ops(plan)) {
    const StagePlace* const place = place_of(plan, op);
    if (place == nullptr) continue;
    if (op.kind == PipelineOpKind::kUnshard) change(*place, 1);
    if (op.kind == PipelineOpKind::kReshard) change(*place, -1);
  }
  return most;
}

}  // namespace gradwire
