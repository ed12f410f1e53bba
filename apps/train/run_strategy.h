// The strategy that `gradwire train`'s flags ask for.
#pragma once

#include <memory>

#include "adapters/trainer/distributed_strategy.h"
#include "adapters/trainer/mesh/mesh_groups.h"
#include "adapters/trainer/trace/rank_trace.h"
#include "apps/train/rank_run.h"
#include "apps/train/train_options.h"
#include "gradwire/status.h"
#include "trainer/strategy/demands.h"
#include "trainer/training.h"

namespace gradwire {

// What it needs of the trainer, with what measures it around it (--measure-every).
Result<Demands> strategy_demands(const TrainOptions& o);
// As --optimizer, --zero and --compressor say. Collective; the groups' world and the trainer, which
// was made for its demands, are lent for its life. trace: gets its spans; may be null, else
// likewise.
Result<std::unique_ptr<DistributedStrategy>> make_strategy(const TrainOptions& o,
                                                           const Problem& problem,
                                                           MeshGroups groups, Trainer& trainer,
                                                           RankTrace* trace);

}  // namespace gradwire
