// When a training run saves checkpoints, and what it goes on from.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "adapters/trainer/modes/mode_checkpoint.h"
#include "adapters/trainer/training_checkpoint.h"
#include "apps/train/train_options.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"

namespace gradwire {

// Collective; everything is borrowed for its life. Of a run with --checkpoint.
class RunCheckpoints {
 public:
  // `compressor`: in canonical spelling.
  RunCheckpoints(const TrainOptions& options, const std::string& compressor,
                 Communicator& communicator, Trainer& trainer, ReplicaHook& hook);

  // Before the first step. With --resume: the last complete checkpoint becomes the run's state; a
  // folder without one is a start from the beginning. Without it a folder that holds checkpoints is
  // refused. A sentence that says which.
  Result<std::string> start();
  // After every step: saves when one is due. A method whose ranks step alone for a while saves when
  // they have met again.
  Status after_step(const StepReport& step);

 private:
  const TrainOptions& options_;
  Trainer& trainer_;
  ReplicaHook& hook_;
  TrainingCheckpoint checkpoint_;
  bool due_ = false;
};

// Of the other modes. Null without --checkpoint; collective otherwise, before the first step.
struct OpenedCheckpoint {
  std::unique_ptr<ModeCheckpoint> saver;
  std::string says;             // as RunCheckpoints::start()
  std::int64_t steps_done = 0;  // of what will be gone on from
};
Result<OpenedCheckpoint> open_mode_checkpoint(const TrainOptions& options,
                                              Communicator& communicator, std::int64_t steps);

}  // namespace gradwire
