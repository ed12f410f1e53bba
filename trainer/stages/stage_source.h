// Gradients of the layers of one rank's stages: micro-batches go through the stages of all ranks of
// Scope::kPipeline, in the order of a schedule. On a device the host waits for it where a step or a
// round of an evaluation ends, beside what transfers wait for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gradwire/status.h"
#include "trainer/device_batch.h"
#include "trainer/pipeline/run/executor.h"
#include "trainer/pipeline/run/stream_executor.h"
#include "trainer/pipeline/run/transfers.h"
#include "trainer/stages/stage_plan.h"
#include "trainer/stages/stage_statistics.h"
#include "trainer/stages/stage_work.h"
#include "trainer/step/micro_batches.h"
#include "trainer/step/step_gradient_source.h"

namespace gradwire {

class StageSource final : public StepGradientSource {
 public:
  // parts.model: StagePlan::layers() of the whole (Model::part()). `transfers` is borrowed.
  // Where the plan gathers, a gate has each layer opened once a step, forward, from the first to
  // the last; else it is this rank's own: layers are opened in the schedule's order. kUnsupported
  // names what stages do not serve: micro-batches that are handed over one by one, momentum
  // at the worker of a parameter that two ranks hold, and without a flush a device, a loss scale,
  // global norms, an optimizer whose state is not by element, an offload. kInvalidArgument: another
  // number of micro-batches than the schedule's, or of peers than the model is shared by.
  static Result<std::unique_ptr<StepGradientSource>> create(const SourceParts& parts,
                                                            const StagePlan& plan,
                                                            PipelineTransfers& transfers,
                                                            TiedSum tied_sum = {});

  void read_through(LayerGate* gate) override { gate_ = gate; }
  Result<double> run(const StepPlace& place, const Ready& ready, const Over& over) override;
  Result<Judgement> judge(Range share, std::int64_t most, LayerGate* gate) override;
  std::vector<std::size_t> openings(Way way) const override;
  RunningStatistics& running() override { return statistics_; }
  bool is_under_way() const override { return step_in_stream_ > 0; }
  std::int64_t steps_to_drain() const override;
  double waited_seconds() const override { return waited_seconds_; }
  void tell(const OnTrainerSpan* told) override;

 private:
  StageSource(const SourceParts& parts, const StagePlan& plan, PipelineTransfers& transfers,
              std::unique_ptr<DeviceBatch> there, StageStatistics statistics);
  Status settled(const Status& ran);
  double waited() const;
  // Of ranks that all compute the losses, the first one.
  bool tells_loss() const { return peers_ == nullptr || peers_->rank() == 0; }
  StageValues values();
  TiedSum timed(TiedSum tied_sum);
  void tell_of(const PipelineOpTime& time) const;
  Status hand_over(int index, const Ready& ready);
  Status check_stream_served(const TrainingOptions& options) const;
  void choose_step(const StepPlace& place);
  void choose_stream(const StepPlace& place);
  void add_seen();
  Status run_stream();
  void choose_evaluated(Range share, int pipe, std::int64_t round);

  const Model<float>& model_;
  const DataSet& data_;
  const ParameterStore& parameters_;
  GradientFold& fold_;
  PipelineTransfers& transfers_;
  MicroBatches micro_batches_;
  LayerPeers* peers_;
  std::unique_ptr<DeviceBatch> there_;  // null on the host
  StageStatistics statistics_;
  int replica_;   // coordinate of dp: one of those that this rank's pipeline stands for
  int replicas_;  // dp
  int pipes_;
  std::int64_t evaluated_;  // samples of an evaluation's pass
  LayerGate* gate_ = nullptr;
  const OnTrainerSpan* told_ = nullptr;
  std::int64_t step_ = 0;      // that is under way
  double waited_seconds_ = 0;  // for messages and in RT, of all steps
  const OnPipelineOp on_op_ = [this](const PipelineOpTime& time) { tell_of(time); };
  std::vector<MicroBatch> batches_;  // of the step
  std::vector<std::span<const std::uint32_t>> evaluation_;
  std::vector<int> layer_ends_;  // of each parameter: the first one behind its layer
  std::vector<bool> done_;       // of each parameter: its gradient is
  bool gathers_ = false;         // StagePlan::gathers
  int next_ = 0;                 // the last parameter that has not been handed over
  std::unique_ptr<StageWork> work_;
  std::optional<PipelineExecutor> training_;
  // Without a flush, in place of it: since the last drain, which step is next and how many there
  // will be; micro-batches have samples of their own, as theirs are of several steps.
  std::optional<StreamExecutor> streaming_;
  StreamRule rule_;
  int stage_ = 0;
  std::int64_t steps_per_epoch_;
  std::int64_t step_in_stream_ = 0;
  std::int64_t steps_of_stream_ = 0;
  std::int64_t begun_ = 0;                           // micro-batches
  std::vector<std::vector<std::uint32_t>> samples_;  // by a micro-batch's number
  std::vector<std::vector<double>> seen_;            // likewise: its sums of running statistics
  std::optional<PipelineExecutor> evaluating_;
};

}  // namespace gradwire
