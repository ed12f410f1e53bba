// Gradients of this rank's micro-batches, one after another, each through the whole model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gradwire/status.h"
#include "trainer/batch_pass.h"
#include "trainer/layer_gate.h"
#include "trainer/model.h"
#include "trainer/step/gradient_fold.h"
#include "trainer/step/micro_batches.h"
#include "trainer/step/parameter_store.h"
#include "trainer/step/peer_sums.h"
#include "trainer/step/step_gradient_source.h"
#include "trainer/training_options.h"

namespace gradwire {

class MicroBatchSource final : public StepGradientSource {
 public:
  // Errors as BatchPass::create().
  static Result<std::unique_ptr<StepGradientSource>> create(const SourceParts& parts);

  void read_through(LayerGate* gate) override { gate_ = gate; }
  Result<double> run(const StepPlace& place, const Ready& ready, const Over& over) override;
  Result<Judgement> judge(Range share, std::int64_t most, LayerGate* gate) override;
  std::vector<std::size_t> openings(Way way) const override { return pass_.walk().openings(way); }
  RunningStatistics& running() override { return pass_; }
  void tell(const OnTrainerSpan* told) override { pass_.tell(told); }
  double waited_seconds() const override { return waited_seconds_; }

 private:
  explicit MicroBatchSource(const SourceParts& parts);
  Result<double> run_one(const MicroBatch& batch, int micro, const Ready& ready);

  const ParameterStore& parameters_;
  GradientFold& fold_;
  MicroBatches batches_;
  BatchPass pass_;
  std::vector<int> layer_ends_;  // of each parameter: the first one behind its layer
  LayerGate* gate_ = nullptr;
  LayerPeers* peers_ = nullptr;
  PeerSums sums_;
  double waited_seconds_ = 0;  // for them, in run()
  bool tells_loss_ = true;     // among ranks that all compute it, the first one does
};

}  // namespace gradwire
