// What pipelines in both directions compute, on one rank: the mean gradient of every copy's
// micro-batches, added up in the order in which the copies of each stage are numbered.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "trainer/batch_pass.h"
#include "trainer/pipeline/generate.h"
#include "trainer/stages/stage_plan.h"
#include "trainer/step/micro_batches.h"
#include "trainer/step/step_gradient_source.h"

namespace gradwire::testing {

// A rank's `accumulate` are the copies, of a model without tied layers.
class BothWaysReplay final : public StepGradientSource {
 public:
  BothWaysReplay(const SourceParts& parts, const TrainingOptions& replicas, const StagePlan& plan,
                 BatchPass pass)
      : parts_(parts),
        cuts_(plan.cuts),
        copies_(parts.options.accumulate),
        micros_(replicas.accumulate),
        batches_(parts.data, replicas, 0),
        pass_(std::move(pass)),
        one_(static_cast<std::size_t>(parts.model.gradients().elems())),
        means_(static_cast<std::size_t>(copies_), std::vector<float>(one_.size())) {}

  // `micros`: of each copy. Ranks of a pipeline: `ranks`.
  static SourceChoice choice(const Model<float>& model, int ranks, int micros) {
    return {[&model, ranks,
             micros](const SourceParts& parts) -> Result<std::unique_ptr<StepGradientSource>> {
              TrainingOptions replicas = parts.options;
              replicas.ranks = parts.options.accumulate;
              replicas.accumulate = micros;
              GW_ASSIGN(const PipelineSchedule schedule,
                        generate_pipeline({.kind = PipelineKind::kChimera}, ranks, 2 * micros));
              GW_ASSIGN(const StagePlan plan, plan_stages(model, schedule, 0, {}));
              GW_ASSIGN(BatchPass pass,
                        BatchPass::create(model, parts.data,
                                          replicas.shares().samples(replicas.batch), {}));
              return std::unique_ptr<StepGradientSource>(
                  new BothWaysReplay(parts, replicas, plan, std::move(pass)));
            },
            1};
  }

  void read_through(LayerGate*) override {}
  Result<double> run(const StepPlace& place, const Ready& ready, const Over& over) override {
    double loss = 0;
    for (int copy = 0; copy < copies_; ++copy) {
      GW_ASSIGN(const double mean, compute(place, copy));
      loss += mean / copies_;
    }
    const GradientTable table = parts_.model.gradients();
    for (int number = 0; number < copies_; ++number) {
      GW_ASSIGN(const std::span<float> gradients, parts_.fold.begin(number));
      for (int index = table.parameters(); index-- > 0;) {
        const ParameterInfo& info = table.tensors[static_cast<std::size_t>(index)];
        const auto begin = static_cast<std::ptrdiff_t>(info.offset);
        std::copy_n(copy_of(index, number).begin() + begin, info.shape.elems(),
                    gradients.begin() + begin);
        GW_ASSIGN(const bool done, parts_.fold.ready(index, number));
        if (done) GW_TRY(ready(index, 0));
      }
      GW_TRY(parts_.fold.micro_batch_done(number, 1));
      GW_TRY(over(number + 1));
    }
    return loss;
  }
  Result<Judgement> judge(Range share, std::int64_t, LayerGate*) override {
    return pass_.judge(parts_.parameters.values(), share.begin, share.end);
  }
  std::vector<std::size_t> openings(Way) const override { return {}; }
  RunningStatistics& running() override { return pass_; }
  void tell(const OnTrainerSpan*) override {}

 private:
  // The mean gradient of a copy's micro-batches, in their order.
  Result<double> compute(const StepPlace& place, int copy) {
    std::vector<float>& sum = means_[static_cast<std::size_t>(copy)];
    double loss = 0;
    for (int micro = 0; micro < micros_; ++micro) {
      const MicroBatch batch = batches_.at(place, copy * micros_ + micro);
      GW_ASSIGN(const double mean,
                pass_.run(parts_.parameters.values(), batch, one_, [](int) { return Status(); }));
      loss += mean / micros_;
      if (micro == 0) {
        sum = one_;
      } else {
        std::ranges::transform(sum, one_, sum.begin(), std::plus());
      }
    }
    for (float& value : sum) value *= 1.0F / static_cast<float>(micros_);
    return loss;
  }
  // Of the first half of the stages the copies are down, up, down, ...; of the others up, down.
  const std::vector<float>& copy_of(int parameter, int number) const {
    std::size_t stage = 0;
    while (parts_.model.parameters_of(cuts_[stage].end - 1).second <= parameter) ++stage;
    const bool second = 2 * stage >= cuts_.size();
    return means_[static_cast<std::size_t>(second ? number ^ 1 : number)];
  }

  SourceParts parts_;  // its options are read at birth alone
  std::vector<LayerRange> cuts_;
  int copies_;
  int micros_;
  MicroBatches batches_;
  BatchPass pass_;
  std::vector<float> one_;
  std::vector<std::vector<float>> means_;  // by copy
};

}  // namespace gradwire::testing
