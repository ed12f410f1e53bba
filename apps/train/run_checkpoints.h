// When a training run saves checkpoints, and what it goes on from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapters/trainer/interruption.h"
#include "adapters/trainer/modes/mode_checkpoint.h"
#include "adapters/trainer/training_checkpoint.h"
#include "apps/folder_lock.h"
#include "apps/train/metrics.h"
#include "apps/train/train_options.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"
#include "trainer/data/data_set.h"

namespace gradwire {

// Collective; everything is borrowed for its life. Of a run with --checkpoint.
class RunCheckpoints {
 public:
  // `compressor`: in canonical spelling.
  RunCheckpoints(const TrainOptions& options, const std::string& compressor, const DataSet& data,
                 Communicator& communicator, Trainer& trainer, DistributedStrategy& strategy);

  // Before the first step. With --resume: the last complete checkpoint becomes the run's state; a
  // folder without one is a start from the beginning. Without it a folder that holds checkpoints is
  // refused, and so is one that another run writes to; from now on it is this run's. So is one that
  // cannot be written, unless no step is left to be made. A sentence that says which.
  Result<std::string> start();
  // What else there is to say of where it started, the same on all ranks.
  const std::vector<std::string>& notices() const { return notices_; }
  // Before the first step: ranks that agree to end save, and after_step() returns what they end
  // with. Borrowed.
  void heed(Interruption* interruption) { interruption_ = interruption; }
  // After every step: saves when one is due. A method whose ranks step alone for a while saves when
  // they have met again.
  Status after_step(const StepReport& step);
  // Whether after_step() failed because the model is not finite, which is not saved.
  bool diverged() const { return checkpoint_.diverged() || (best_ && best_->diverged()); }
  // With --checkpoint-best, of the lowest test loss so far, also before the run was resumed: after
  // how many steps, and what it was; none before the first evaluation.
  using Best = RunFacts::Best;
  const std::optional<Best>& best() const { return kept_; }
  // After a run that came to its end.
  Status settle() { return checkpoint_.settle(); }

 private:
  // The best one of before, where the run goes on; a folder that has some where it does not is
  // refused.
  Status start_best();
  // Saves the step if its test loss is the lowest so far.
  Status keep_best(const StepReport& step);

  const TrainOptions& options_;
  std::int64_t judged_;  // labels of an evaluation
  Trainer& trainer_;
  DistributedStrategy& strategy_;
  Communicator& communicator_;
  std::optional<FolderLock> lock_;  // on rank 0
  TrainingCheckpoint checkpoint_;
  std::optional<TrainingCheckpoint> best_;  // in a folder of its own
  std::optional<Best> kept_;
  Interruption* interruption_ = nullptr;
  std::vector<std::string> notices_;
  bool due_ = false;
};

// Of the other modes. Null without --checkpoint; collective otherwise, before the first step.
struct OpenedCheckpoint {
  std::optional<FolderLock> lock;  // on rank 0
  std::unique_ptr<ModeCheckpoint> saver;
  std::string says;             // as RunCheckpoints::start()
  std::int64_t steps_done = 0;  // of what will be gone on from
};
Result<OpenedCheckpoint> open_mode_checkpoint(const TrainOptions& options, const DataSet& data,
                                              Communicator& communicator, std::int64_t steps);

}  // namespace gradwire
