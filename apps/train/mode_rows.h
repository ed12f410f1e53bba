// What a mode tells of its steps, turned into rows of a report and evaluations.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "adapters/trainer/modes/mode.h"
#include "adapters/trainer/modes/model_gradients.h"
#include "apps/train/report.h"
#include "apps/train/train_options.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"

namespace gradwire {

// Used from one thread at a time.
class ModeRows {
 public:
  // `evaluator` counts; all are borrowed. `communicator` is null where one rank is told of all.
  ModeRows(const TrainOptions& options, ModelGradients& evaluator, std::int64_t test_samples,
           Communicator* communicator, RunReport* report, std::uint64_t dense_bytes)
      : options_(options),
        evaluator_(evaluator),
        test_samples_(test_samples),
        communicator_(communicator),
        report_(report),
        dense_bytes_(dense_bytes) {}

  // Before the first step. `facts` of the run stand in its metrics should it diverge.
  void start(const RunFacts& facts);
  // A loss that is not finite ends the run.
  Status step(const ModeStep& step);
  // Share of the test set that is right. `together`: all ranks call with the same parameters.
  Result<double> evaluate(std::span<const float> params, bool together);

 private:
  const TrainOptions& options_;
  ModelGradients& evaluator_;
  std::int64_t test_samples_;
  Communicator* communicator_;
  RunReport* report_;
  std::uint64_t dense_bytes_;  // of a step, as a ring would send them
  RunFacts facts_;
  bool due_ = false;  // an evaluation, as soon as there is a model
  std::uint64_t bytes_sent_ = 0;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace gradwire
