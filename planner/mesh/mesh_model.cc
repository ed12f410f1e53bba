#include "planner/mesh/mesh_model.h"

#include <algorithm>

#include "planner/profile/measure.h"
#include "trainer/layer_walk.h"
#include "trainer/layers/parallel/input_sum.h"
#include "trainer/layers/parallel/row_linear.h"
#include "trainer/layers/parallel/sample_input.h"
#include "trainer/layers/parallel/vocabulary_embedding.h"
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

Result<std::vector<LayerRange>> MeshModel::cuts(int stages, bool flush,
                                                const std::vector<int>& layers) {
  GW_ASSIGN(const Model<float>* const model, part(1, flush));
  if (stages == 1) return std::vector<LayerRange>{model->all()};
  const std::tuple key(stages, flush, layers);
  const auto known = cuts_.find(key);
  if (known != cuts_.end()) return known->second;
  // Any schedule of so many stages is cut alike.
  GW_ASSIGN(const PipelineSchedule schedule,
            generate_pipeline({.kind = PipelineKind::kGpipe, .layers = layers}, stages, 1));
  GW_ASSIGN(const StagePlan plan, plan_stages(*model, schedule, 0, {}));
  cuts_[key] = plan.cuts;
  return plan.cuts;
}

namespace {

// Exchanges of a layer that is shared, by what it is made of. `input` is what it reads.
void add_sums(const Layer<float>& layer, const SampleShape& input, std::vector<MeshSum>& sums) {
  const auto output = static_cast<double>(layer.output().elems());
  const auto read = static_cast<double>(input.elems());
  if (dynamic_cast<const RowLinear<float>*>(&layer) != nullptr ||
      dynamic_cast<const VocabularyEmbedding<float>*>(&layer) != nullptr) {
    sums.push_back({.elems = output});
  } else if (dynamic_cast<const InputSum<float>*>(&layer) != nullptr) {
    sums.push_back({.back = true, .elems = read, .beside = layer.cost().weight_macs});
  } else if (dynamic_cast<const SampleInput<float>*>(&layer) != nullptr) {
    sums.push_back({.half = true, .elems = read});
    sums.push_back({.back = true, .half = true, .elems = read, .beside = layer.cost().weight_macs});
  }
  for (const LayerPart<float>& part : layer.parts()) add_sums(*part.layer, part.input, sums);
}

// Maxima of classes, and the sums of their powers with the right one's, in fp64.
void add_loss_sums(const Model<float>& part, std::vector<MeshSum>& sums) {
  if (!part.class_share()) return;
  constexpr double kFloatsOfSums = 4;
  const double rows =
      static_cast<double>(part.output().elems()) /
      static_cast<double>(std::max<std::int64_t>(part.class_share()->here.size(), 1));
  sums.push_back({.elems = rows});
  sums.push_back({.elems = kFloatsOfSums * rows});
}

// `rows`: of what the layer reads, and then of what it gives.
double rows_behind(const Layer<float>& layer, int tp, double rows) {
  if (layer.sample_rows() == SampleRows::kOwn) return 1.0 / tp;
  return layer.sample_rows() == SampleRows::kAll ? 1 : rows;
}

MeshLayerWork work_of(const Model<float>& whole, const Model<float>& part, std::size_t layer) {
  const auto& table = part.parameters();
  const auto elems = [&](int parameter) {
    return static_cast<double>(table[static_cast<std::size_t>(parameter)].shape.elems());
  };
  MeshLayerWork work{.macs = part.layer(layer).cost()};
  work.input_elems = layer > 0 ? part.layer(layer - 1).output().elems() : 0;
  work.output_elems = part.layer(layer).output().elems();
  if (!part.derives_input(layer)) work.macs.input_macs = 0;
  const auto [first, end] = part.parameters_of(layer);
  for (int parameter = first; parameter < end; ++parameter) {
    const ParameterInfo& info = table[static_cast<std::size_t>(parameter)];
    work.tensors.push_back({info.name, info.shape});
    work.parameters += elems(parameter);
    if (info.summed) work.summed += elems(parameter);
  }
  if (part.tied_to(layer) >= 0) work.tied = elems(part.tied_to(layer));
  add_sums(part.layer(layer), layer > 0 ? part.layer(layer - 1).output() : part.input(), work.sums);
  if (!part.derives_input(layer)) std::erase_if(work.sums, &MeshSum::back);
  // Ranks that divide a micro-batch have a layer more, which the whole model lacks.
  const std::size_t offset = part.layers() - whole.layers();
  if (layer >= offset) work.whole = profiled_shape(whole, layer - offset);
  return work;
}

}  // namespace

Result<const std::vector<MeshLayerWork>*> MeshModel::work(int tp, bool flush, int stages,
                                                          const std::string& recompute,
                                                          const std::vector<int>& layers) {
  // Without it every division into stages has the same work.
  if (recompute == "none" && stages > 1) return work(tp, flush, 1, recompute);
  std::tuple key(tp, flush, stages, recompute, layers);
  const auto known = works_.find(key);
  if (known != works_.end()) return &known->second;
  GW_ASSIGN(const Model<float>* const whole, part(1, flush));
  GW_ASSIGN(const Model<float>* const share, part(tp, flush));
  // Of images, ranks of tp have a layer more than the whole model.
  std::vector<LayerRange> ranges{share->all()};
  if (stages > 1) {
    GW_ASSIGN(ranges, cuts(stages, flush, layers));
  }
  std::vector<MeshLayerWork> work;
  double rows = 1;
  for (const LayerRange& range : ranges) {
    for (std::size_t layer = range.begin; layer < range.end; ++layer) {
      work.push_back(work_of(*whole, *share, layer));
      const Layer<float>& one = share->layer(layer);
      rows = rows_behind(one, tp, rows);
      work.back().rows = rows;
    }
    GW_ASSIGN(const std::vector<Segment> segments, recompute_segments(recompute, *share, range));
    const LayerWalk walk(*share, segments, range);
    for (const LayerTurn& turn : walk.turns(Way::kBack)) {
      if (turn.kind != LayerTurn::Kind::kAgain) continue;
      work[turn.layer].again += work[turn.layer].macs.forward_macs;
      ++work[turn.layer].times_again;
    }
  }
  work.back().loss = profiled_loss(whole->output());
  add_loss_sums(*share, work.back().sums);
  return &works_.emplace(std::move(key), std::move(work)).first->second;
}

}  // namespace gradwire
