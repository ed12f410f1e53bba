// Checkpoints of the modes beside plain all-reduce: the same files as TrainingCheckpoint's, written
// and read by all ranks together.
//
//   parameters/NAME          the model: the servers', the centre, the average
//   buffers/running          running statistics, one after another
//   mode/NAME                counters that all ranks have alike
//   rank-R/mode/NAME         what rank R alone keeps
//
// A run goes on on another number of ranks where all that its ranks keep by themselves is there and
// none of it is left over: plain servers' workers and plain local SGD's clients keep nothing. A
// worker's own model, momentum or what its coders owe is nobody else's, and is neither dropped nor
// made up.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "adapters/trainer/checkpoints.h"
#include "adapters/trainer/modes/mode.h"
#include "adapters/trainer/training_checkpoint.h"
#include "gradwire/communicator.h"

namespace gradwire {

struct ModeCheckpointOptions {
  TrainingCheckpointOptions run;  // accumulate is not looked at
  std::int64_t steps = 0;         // of the run in all
  std::int64_t every = 0;         // steps; 0: at the end only
  double lr = 0;                  // for the manifest
};

// Collective; the communicator is borrowed for the object's life.
class ModeCheckpoint final : public ModeSaver {
 public:
  ModeCheckpoint(Communicator& communicator, ModeCheckpointOptions options)
      : communicator_(communicator),
        options_(std::move(options)),
        checkpoints_(communicator, options_.run.files) {}

  // Before the run: what restore() will take, the last complete checkpoint; nullopt where there is
  // none. kInvalidArgument names the setting that differs from this run's.
  Result<std::optional<ResumedFrom>> open_last();
  // As Checkpoints::diverged().
  bool diverged() const { return checkpoints_.diverged(); }
  // As Checkpoints::settle().
  Status settle() { return checkpoints_.settle(); }
  // The step of the last complete one, if there is any.
  Result<std::optional<std::int64_t>> last_step() { return checkpoints_.last_step(); }

  // kInvalidArgument names what this rank's is not there for, or what is left over.
  Result<std::int64_t> restore(std::span<const ModePart> mine) override;
  bool lacks(const std::string& part) const override;
  std::int64_t next(std::int64_t done) const override;
  Status save(std::int64_t done, std::span<const ModePart> mine) override;

 private:
  Status check(const CheckpointManifest& manifest) const;
  Status read(std::span<const ModePart> mine);
  // read(), whose error says where other numbers of ranks are the reason.
  Status read_all(std::span<const ModePart> mine);

  Communicator& communicator_;
  ModeCheckpointOptions options_;
  Checkpoints checkpoints_;
  std::optional<CheckpointReader> from_;
};

}  // namespace gradwire
