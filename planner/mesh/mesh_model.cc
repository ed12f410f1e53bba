#include "planner/mesh/mesh_model.h"

#include "trainer/layer_walk.h"
#include "trainer/layers/residual.h"
#include "trainer/pipeline/generate.h"
#include "trainer/stages/stage_plan.h"

namespace gradwire {

Result<const Model<float>*> MeshModel::part(int tp, bool flush) {
  std::unique_ptr<Result<Model<float>>>& made = parts_[{tp, flush}];
  if (!made) {
    made = std::make_unique<Result<Model<float>>>(make_({.ranks = tp, .rank = tp - 1}, flush));
  }
  if (!made->has_value()) return made->error();
  return &made->value();
}

Result<std::vector<LayerRange>> MeshModel::cuts(int stages, bool flush) {
  GW_ASSIGN(const Model<float>* const model, part(1, flush));
  if (stages == 1) return std::vector<LayerRange>{model->all()};
  const auto known = cuts_.find({stages, flush});
  if (known != cuts_.end()) return known->second;
  // Any schedule of so many stages is cut alike.
  GW_ASSIGN(const PipelineSchedule schedule,
            generate_pipeline({.kind = PipelineKind::kGpipe}, stages, 1));
  GW_ASSIGN(const StagePlan plan, plan_stages(*model, schedule, 0, {}));
  cuts_[{stages, flush}] = plan.cuts;
  return plan.cuts;
}

namespace {

MeshLayerWork work_of(const Model<float>& whole, const Model<float>& part, std::size_t layer) {
  const auto elems = [&](int parameter) {
    return static_cast<double>(
        part.parameters()[static_cast<std::size_t>(parameter)].shape.elems());
  };
  MeshLayerWork work{.macs = part.layer(layer).cost(),
                     .input_elems = layer > 0 ? whole.layer(layer - 1).output().elems() : 0,
                     .output_elems = whole.layer(layer).output().elems()};
  if (!part.derives_input(layer)) work.macs.input_macs = 0;
  const auto [first, end] = part.parameters_of(layer);
  for (int parameter = first; parameter < end; ++parameter) work.parameters += elems(parameter);
  if (part.tied_to(layer) >= 0) work.tied = elems(part.tied_to(layer));
  work.half_of_block = dynamic_cast<const Residual<float>*>(&whole.layer(layer)) != nullptr;
  return work;
}

}  // namespace

Result<const std::vector<MeshLayerWork>*> MeshModel::work(int tp, bool flush, int stages,
                                                          const std::string& recompute) {
  const auto known = works_.find({tp, flush, stages, recompute});
  if (known != works_.end()) return &known->second;
  GW_ASSIGN(const Model<float>* const whole, part(1, flush));
  GW_ASSIGN(const Model<float>* const share, part(tp, flush));
  GW_ASSIGN(const std::vector<LayerRange> ranges, cuts(stages, flush));
  std::vector<MeshLayerWork> work;
  for (const LayerRange& range : ranges) {
    for (std::size_t layer = range.begin; layer < range.end; ++layer) {
      work.push_back(work_of(*whole, *share, layer));
    }
    GW_ASSIGN(const std::vector<Segment> segments, recompute_segments(recompute, *share, range));
    const LayerWalk walk(*share, segments, range);
    for (const LayerTurn& turn : walk.turns(Way::kBack)) {
      if (turn.kind != LayerTurn::Kind::kAgain) continue;
      work[turn.layer].again += work[turn.layer].macs.forward_macs;
    }
  }
  return &works_.emplace(std::tuple(tp, flush, stages, recompute), std::move(work)).first->second;
}

}  // namespace gradwire
