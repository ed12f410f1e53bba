// One rank's part of a training run, whatever carries its bytes.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapters/trainer/distributed_strategy.h"
#include "adapters/trainer/measured_gradients.h"
#include "adapters/trainer/mesh/rank_model.h"
#include "apps/train/report.h"
#include "apps/train/run_checkpoints.h"
#include "apps/train/trace_file.h"
#include "apps/train/train_options.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"
#include "trainer/data/data_set.h"
#include "trainer/model.h"
#include "trainer/models.h"
#include "trainer/training.h"

namespace gradwire {

// Immutable and shared by ranks that are threads.
struct Problem {
  DataSet data;
  Model<float> model;
  std::vector<Model<float>> shared = {};  // by rank of tp, where --parallel has several: its part
};
// kInvalidArgument where the model is not one for the data.
Status check_problem(const TrainOptions& options);
// Errors as check_problem() and of what is loaded. `environment_dir` is what GRADWIRE_DATA says, ""
// when unset.
Result<Problem> load_problem(const TrainOptions& options, const std::string& environment_dir);
// Whether --parallel's stages can be cut from the model. Errors as choose_pipeline() and
// plan_stages().
Status check_stages(const TrainOptions& options, const Problem& problem);
// Whether its stages compute again what --recompute says. Errors as PipelineStage::create().
Status check_recompute(const TrainOptions& options, const Problem& problem);

// The labels that an evaluation predicts: one of each sample of the test set, of a text one of each
// token.
std::int64_t judged_labels(const DataSet& data);

// The model that the flags ask for.
ModelOptions model_options(const TrainOptions& options);

// What --shuffle says of these data.
Shuffle shuffle_of(const TrainOptions& options, const DataSet& data);

// Used from one thread. All arguments are borrowed for its life.
class RankRun {
 public:
  // Collective. `report` is null but on rank 0. Refuses illegal options, also those that are only
  // known once ranks are. `interruption`: null where checkpoints are not asked for.
  static Result<std::unique_ptr<RankRun>> create(const TrainOptions& options,
                                                 const Problem& problem, Communicator& communicator,
                                                 RunReport* report, Interruption* interruption);

  // Collective: trains, compares the replicas, saves and reports. An error is this rank's, and says
  // all that there is to say.
  Status run();

 private:
  RankRun(const TrainOptions& options, const Problem& problem, Communicator& communicator,
          RunReport* report, std::unique_ptr<RankModel> held, Trainer trainer);
  Status start();
  Status on_step(const StepReport& step);
  Status start_checkpoints();
  // This rank sent since it was last asked, without what measuring sent.
  TrafficBytes traffic_bytes() const;
  TrafficBytes bytes_since();
  StepRow row_of(const StepReport& step, const TrafficBytes& sent);
  Status report_step(const StepReport& step, const TrafficBytes& sent);
  // A loss that is not finite is the training's last.
  Status check_losses(const StepReport& step);
  Status diverged(const Status& why);
  RunFacts facts() const;
  Status finish(double accuracy);
  // Where the whole model is: where ranks hold parts, on the first one alone.
  Status save_and_hash(RunFacts& facts);
  Status save_and_hash_whole(RunFacts& facts);
  Status hash_whole(const WholeModel& whole, RunFacts& facts) const;
  std::string headline();
  std::string drains_text() const;
  std::vector<NamedTensor> saved_tensors(std::vector<float>& wide);
  Status load_parameters();

  const TrainOptions& options_;
  const Problem& problem_;
  Communicator& communicator_;  // of all ranks
  RunReport* report_;
  Interruption* interruption_ = nullptr;
  std::unique_ptr<RankModel> held_;  // the whole model, or this rank's part of it
  Trainer trainer_;
  std::unique_ptr<RankTrace> trace_;     // null without --trace; before who tells it
  std::optional<TraceFile> trace_file_;  // on rank 0
  std::unique_ptr<DistributedStrategy> strategy_;
  std::unique_ptr<MeasuredGradients> measured_;  // around strategy_, where it is asked for
  std::unique_ptr<RunCheckpoints> checkpoints_;  // null without --checkpoint
  std::optional<RunFacts::Pipeline> pipeline_;   // of stages, on rank 0
  std::vector<StepRow> waiting_;                 // for their losses, oldest first; on rank 0
  std::int64_t judged_ = 0;                      // steps whose losses are known
  Status late_;                                  // what is wrong with one of them
  // As of the end of the last step.
  AggregateStats aggregated_;
  std::uint64_t bytes_sent_ = 0;
  TrafficBytes traffic_ = {};  // of the strategy's exchanges
  double measured_seconds_ = 0;
  std::int64_t exchanges_held_ = 0;  // bytes
};

}  // namespace gradwire
