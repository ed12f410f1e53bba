// All that a data-parallel training run needs to go on as if nothing had happened, saved and
// restored by all of its ranks.
//
//   parameters/NAME          equal on all replicas; the first writes it, or owners of parts do
//   buffers/NAME             running statistics; the first replica writes them
//   trainer/NAME             Trainer::state(): position, loss scale; rank 0 writes it
//   worker-W/NAME            momentum of worker W, as BatchShares (base/mesh.h) numbers them
//   optimizer/, master/, dp-D/, rank-R/hook/
//                            what strategy_state.h says
// Where the ranks of a replica each hold a part of the model, each writes what is of its own
// parameters, and one of them the rest (entry_owner.h). Each entry is read at any stage of
// sharding, on any number of replicas, however they divide the model.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "adapters/trainer/checkpoints.h"
#include "adapters/trainer/distributed_strategy.h"
#include "adapters/trainer/entry_owner.h"
#include "base/mesh.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"
#include "trainer/optimizers/lr_schedule.h"
#include "trainer/training.h"

namespace gradwire {

struct TrainingCheckpointOptions {
  CheckpointsOptions files;
  std::int64_t batch = 0;  // samples of a step
  int accumulate = 1;
  std::uint64_t seed = 0;
  std::map<std::string, std::string> must_match;  // settings that a resumed run has alike
  std::map<std::string, std::string> notes;       // settings that it may have otherwise
  // Settings that it has alike where the checkpoint says what they were: older ones do not.
  std::map<std::string, std::string> match_if_known;
  // What a checkpoint says for others to read, and nothing here compares.
  std::map<std::string, std::string> carried = {};
  // Of the whole run. A resumed one has as many where the rates of its schedule are a function of
  // them, and the checkpoint's schedule was the same.
  std::int64_t steps = 0;
  LrSchedule schedule;
  // The compressor keeps a momentum itself, and the run has no other. Checkpoints from before these
  // excluded one another hold the optimizer's, too: it is left out.
  bool leaves_momentum = false;
};

// What was resumed from.
struct ResumedFrom {
  std::string path;
  std::int64_t step = 0;
  int ranks = 1;                           // that wrote it
  std::map<std::string, std::string> was;  // notes that are otherwise now, as they were
  std::vector<std::string> notices;        // state that starts anew (restarted_state.h)
};

// kInvalidArgument names the setting that the checkpoint has otherwise.
Status check_same_settings(const CheckpointManifest& manifest,
                           const TrainingCheckpointOptions& options);
// What a checkpoint says of the run that wrote it.
std::map<std::string, std::string> settings_of(const TrainingCheckpointOptions& options);
// What to say of a checkpoint that is gone on from with these notes.
ResumedFrom resumed_from(const std::string& path, const CheckpointManifest& manifest,
                         const std::map<std::string, std::string>& notes);

// Collective, from the thread that trains, between steps. Everything is borrowed for its life.
class TrainingCheckpoint {
 public:
  TrainingCheckpoint(Communicator& communicator, Trainer& trainer, DistributedStrategy& strategy,
                     TrainingCheckpointOptions options)
      : communicator_(communicator),
        trainer_(trainer),
        strategy_(strategy),
        options_(std::move(options)),
        checkpoints_(communicator, options_.files) {}

  // After a step that left the replicas equal: the rate and the loss scale that it used. Errors as
  // Checkpoints::save().
  Status save(double learning_rate, double loss_scale);
  // As Checkpoints::diverged().
  bool diverged() const { return checkpoints_.diverged(); }
  // As Checkpoints::settle().
  Status settle() { return checkpoints_.settle(); }
  // Before the first step: from the last complete one; nullopt where there is none. As many ranks
  // as wrote it: bit for bit. Else residuals and shifts keep their average over ranks, factors
  // stay, and where there are more or fewer workers than there were, each has the average of the
  // old ones' momenta. What fits boxes or ranges that nobody holds any more starts anew
  // (restarted_state.h).
  // kInvalidArgument names the setting or tensor that differs from this run's, and kCorruptPayload
  // what is damaged; the run cannot go on then.
  Result<std::optional<ResumedFrom>> resume();
  // TrainingCheckpointOptions::carried, of what is saved from now on.
  void carry(const std::string& name, const std::string& value) { options_.carried[name] = value; }
  // As Checkpoints::keep_only().
  Status keep_only(std::int64_t step) { return checkpoints_.keep_only(step); }
  // The step of the last complete one, if there is any.
  Result<std::optional<std::int64_t>> last_step() { return checkpoints_.last_step(); }

 private:
  Result<std::vector<TensorPart>> parts();
  std::vector<TensorPart> trainer_parts(const EntryOwner& owner);
  // What ranks tell each other of what they have read.
  struct Taken {
    std::set<std::string> used;   // tensors of the checkpoint
    std::set<std::string> begun;  // entries of the state that start anew
  };
  Status restore(CheckpointReader& reader, Taken& taken);
  Status restore_worker(CheckpointReader& reader, int micro, const NamedTensor& own) const;
  Status restore_trainer(CheckpointReader& reader, std::set<std::string>& used);
  Status restore_strategy(CheckpointReader& reader, Taken& taken);
  // This run's mesh, and this rank's place on it.
  const MeshSizes& mesh() const { return strategy_.groups().sizes(); }
  MeshCoordinates place() const { return strategy_.groups().coordinates(); }
  BatchShares shares() const { return {mesh().dp, options_.accumulate}; }
  int worker_number(int micro) const { return shares().number(place().dp, micro); }

  Communicator& communicator_;
  Trainer& trainer_;
  DistributedStrategy& strategy_;
  TrainingCheckpointOptions options_;
  Checkpoints checkpoints_;
};

}  // namespace gradwire
