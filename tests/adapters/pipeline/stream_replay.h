// What stages without a flush compute, on one rank: each micro-batch's gradient from the versions
// of the parameters that its stages read, applied to the newest.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "trainer/batch_pass.h"
#include "trainer/pipeline/stream_rule.h"
#include "trainer/stages/stage_plan.h"
#include "trainer/step/micro_batches.h"
#include "trainer/step/step_gradient_source.h"

namespace gradwire::testing {

class StreamReplay final : public StepGradientSource {
 public:
  // Drains behind each `drains`-th step, as the stages do.
  StreamReplay(const SourceParts& parts, const StreamRule& rule, const StagePlan& plan,
               std::int64_t drains, BatchPass pass)
      : parts_(parts),
        rule_(rule),
        cuts_(plan.cuts),
        drains_(drains),
        batches_(parts.data, parts.options),
        pass_(std::move(pass)),
        read_(static_cast<std::size_t>(parameter_elems(parts.model.parameters()))) {}

  static SourceChoice choice(const Model<float>& model, const StreamRule& rule,
                             std::int64_t drains) {
    return {[&model, rule,
             drains](const SourceParts& parts) -> Result<std::unique_ptr<StepGradientSource>> {
      GW_ASSIGN(const StagePlan plan, plan_stream(model, rule, 0));
      GW_ASSIGN(BatchPass pass,
                BatchPass::create(parts.model, parts.data,
                                  parts.options.shares().samples(parts.options.batch),
                                  {parts.options.recompute, parts.options.places.device}));
      return std::unique_ptr<StepGradientSource>(
          new StreamReplay(parts, rule, plan, drains, std::move(pass)));
    }};
  }

  void read_through(LayerGate* gate) override { gate_ = gate; }
  Result<double> run(const StepPlace& place, const Ready& ready, const Over& over) override {
    const std::int64_t step = place.step % drains_;
    is_under_way_ = place.steps_left > 1;
    if (step == 0) history_.clear();
    GW_ASSIGN(history_[step], whole(gate_));
    history_.erase(step - rule_.ranks - 1);
    double loss = 0;
    for (int micro = 0; micro < rule_.micro_batches; ++micro) {
      choose(step * rule_.micro_batches + micro);
      GW_ASSIGN(const std::span<float> gradients, parts_.fold.begin(micro));
      auto complete = [&](int index) -> Status {
        GW_ASSIGN(const bool done, parts_.fold.ready(index, micro));
        return done ? ready(parts_.fold.parameter_of(index), 0) : Status();
      };
      const MicroBatch batch = batches_.at(place, micro);
      GW_ASSIGN(const double mean, pass_.run(read_, batch, gradients, std::ref(complete)));
      GW_TRY(parts_.fold.micro_batch_done(micro, batch.loss_scale));
      GW_TRY(over(micro + 1));
      loss += mean;
    }
    return loss / rule_.micro_batches;
  }
  Result<Judgement> judge(Range share, std::int64_t, LayerGate* gate) override {
    GW_ASSIGN(const std::vector<float> values, whole(gate));
    return pass_.judge(values, share.begin, share.end);
  }
  std::vector<std::size_t> openings(Way) const override { return {}; }
  RunningStatistics& running() override { return pass_; }
  // Replicas of stages average running statistics where these drain.
  bool is_under_way() const override { return is_under_way_; }
  void tell(const OnTrainerSpan*) override {}

 private:
  // All parameters, as a gate brings them.
  Result<std::vector<float>> whole(LayerGate* gate) const {
    const Model<float>& model = parts_.model;
    std::vector<float> all(read_.size());
    for (std::size_t layer = 0; layer < model.layers(); ++layer) {
      if (gate != nullptr) GW_TRY(gate->open(layer, Way::kForward));
      const auto [first, end] = model.parameters_of(layer);
      for (int index = first; index < end; ++index) {
        const ParameterInfo& info = model.parameters()[static_cast<std::size_t>(index)];
        const auto begin = static_cast<std::ptrdiff_t>(info.offset);
        std::copy_n(parts_.parameters.values().begin() + begin, info.shape.elems(),
                    all.begin() + begin);
      }
      if (gate != nullptr) GW_TRY(gate->close(layer, Way::kForward));
    }
    return all;
  }
  // Each stage's parameters in the version that the micro-batch reads.
  void choose(std::int64_t micro) {
    const ParameterTable& table = parts_.model.parameters();
    for (std::size_t stage = 0; stage < cuts_.size(); ++stage) {
      const std::vector<float>& version =
          history_.at(rule_.version_of(static_cast<int>(stage), micro));
      for (std::size_t layer = cuts_[stage].begin; layer < cuts_[stage].end; ++layer) {
        const auto [first, end] = parts_.model.parameters_of(layer);
        for (int index = first; index < end; ++index) {
          const ParameterInfo& info = table[static_cast<std::size_t>(index)];
          const auto begin = static_cast<std::ptrdiff_t>(info.offset);
          std::copy_n(version.begin() + begin, info.shape.elems(), read_.begin() + begin);
        }
      }
    }
  }

  SourceParts parts_;  // its options are read at birth alone
  StreamRule rule_;
  std::vector<LayerRange> cuts_;
  std::int64_t drains_;
  LayerGate* gate_ = nullptr;
  bool is_under_way_ = false;
  MicroBatches batches_;
  BatchPass pass_;
  std::vector<float> read_;
  std::map<std::int64_t, std::vector<float>> history_;  // parameters by version, since the drain
};

}  // namespace gradwire::testing
