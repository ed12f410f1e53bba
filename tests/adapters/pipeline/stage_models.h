// Small models with every kind of layer, their data, and the schedules that they go through.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/adapters/pipeline/pipeline_runs.h"
#include "trainer/data/catalog.h"
#include "trainer/models.h"
#include "trainer/pipeline/generate.h"

namespace gradwire::testing {

constexpr std::int64_t kStageSteps = 3;

inline const DataSet& digits_data() {
  static const DataSet kSet = std::move(load_data_set("digits", {})).value();
  return kSet;
}

inline Model<float> model_for(const ModelOptions& options, const DataSet& data) {
  return std::move(make_model<float>(options, data.shape(), data.classes())).value();
}

// 8 hidden layers.
inline const Model<float>& deep_mlp() {
  static const Model<float> kModel =
      model_for({"mlp", {24, 20, 24, 18, 16, 20, 12, 14}}, digits_data());
  return kModel;
}

// With batch norm.
inline const Model<float>& small_resnet() {
  static const Model<float> kModel = [] {
    ModelOptions options{"resnet8"};
    options.width = 4;
    return model_for(options, digits_data());
  }();
  return kModel;
}

// A few steps are judged by 96 windows, which take less than the steps.
inline const DataSet& grammar_text() {
  static const DataSet kSet = [] {
    DataOptions options;
    options.text.context = 8;
    options.text.evaluated = 96;
    return std::move(load_data_set("grammar", {}, options)).value();
  }();
  return kSet;
}

inline Model<float> gpt_of(bool tied) {
  ModelOptions options{"gpt"};
  options.width = 8;
  options.layers = 4;
  options.heads = 2;
  options.dropout = 0.2;
  options.tied = tied;
  return model_for(options, grammar_text());
}

inline const Model<float>& small_gpt() {
  static const Model<float> kModel = gpt_of(false);
  return kModel;
}

inline const Model<float>& tied_gpt() {
  static const Model<float> kModel = gpt_of(true);
  return kModel;
}

inline PipelineRun run_of(const Model<float>& model, const DataSet& data, int micro_batches,
                          const std::string& optimizer) {
  PipelineRun run{.model = &model, .data = &data};
  run.options.accumulate = micro_batches;
  run.options.batch = std::int64_t{4} * micro_batches;
  run.options.steps = kStageSteps;
  run.options.lr = optimizer == "adamw" ? 0.003 : 0.05;
  run.options.optimizer.name = optimizer;
  return run;
}

inline std::vector<PipelineSpec> every_spec() {
  return {{.kind = PipelineKind::kGpipe},
          {.kind = PipelineKind::kOneFOneB},
          {.kind = PipelineKind::kInterleaved, .chunks = 2},
          {.kind = PipelineKind::kZeroBubbleH1},
          {.kind = PipelineKind::kZeroBubbleV},
          {.kind = PipelineKind::kZeroBubbleVHalf},
          {.kind = PipelineKind::kZeroBubbleVMin},
          {.kind = PipelineKind::kBreadthFirst, .chunks = 2}};
}

}  // namespace gradwire::testing
