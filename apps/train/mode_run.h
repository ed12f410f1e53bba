// One rank's part of a training run in another mode than synchronous all-reduce.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapters/trainer/modes/model_gradients.h"
#include "adapters/trainer/modes/server/ps_async.h"
#include "adapters/trainer/modes/sync_easgd.h"
#include "apps/train/mode_rows.h"
#include "apps/train/rank_run.h"
#include "apps/train/report.h"
#include "apps/train/run_checkpoints.h"
#include "apps/train/train_options.h"
#include "gradwire/communicator.h"
#include "gradwire/registry.h"
#include "gradwire/status.h"

namespace gradwire {

// Used from one thread. All arguments are borrowed for its life.
class ModeRun {
 public:
  // `report` is null but on rank 0, `interruption` where checkpoints are not asked for.
  static Result<std::unique_ptr<ModeRun>> create(const TrainOptions& options,
                                                 const Problem& problem, Communicator& communicator,
                                                 RunReport* report, Interruption* interruption);
  // Collective.
  Status run();

 private:
  ModeRun(const TrainOptions& options, const Problem& problem, Communicator& communicator,
          RunReport* report, int workers)
      : options_(options),
        problem_(problem),
        communicator_(communicator),
        report_(report),
        workers_(workers) {}
  int worker() const { return communicator_.rank() - (communicator_.size() - workers_); }
  std::string headline() const;
  RunFacts facts() const;
  Status start();
  Status train();
  ElasticOptions elastic_options();
  Status train_elastic(const ModeOptions& mode);
  Status train_async_elastic(const ModeOptions& mode);
  Status train_easgd(const ModeOptions& mode);
  Status train_fedavg(const ModeOptions& mode);
  Status train_async(const ModeOptions& mode);
  Status train_sync(const ModeOptions& mode);
  Status finish();

  const TrainOptions& options_;
  const Problem& problem_;
  Communicator& communicator_;
  RunReport* report_;
  Interruption* interruption_ = nullptr;
  int workers_;
  std::int64_t steps_ = 0;
  std::unique_ptr<ModelGradients> source_;
  std::unique_ptr<ModeRows> rows_;
  std::vector<float> params_;
  std::optional<AsyncOutcome> async_;
  OpenedCheckpoint checkpoint_;
};

// Threads of this process that share one set of parameters and no communicator.
Status run_hogwild_threads(const TrainOptions& options, const Problem& problem, int threads,
                           RunReport& report, Interruption* interruption);

}  // namespace gradwire
