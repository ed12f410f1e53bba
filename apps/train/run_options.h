// What `gradwire train`'s flags say to the trainer and to its strategy.
#pragma once

#include "adapters/trainer/data_parallel.h"
#include "adapters/trainer/mesh/mesh_groups.h"
#include "adapters/trainer/sharded/sharded.h"
#include "apps/train/rank_run.h"
#include "gradwire/status.h"
#include "trainer/memory/memory_arena.h"

namespace gradwire {

// A dry run takes none of the memory that it asks for.
MemoryArena::Pages pages_of(const TrainOptions& o);
// As --loss-scale says, or else the precision.
Result<LossScaleOptions> loss_scale_of(const TrainOptions& o);
// Of this rank of the mesh. kInvalidArgument for flags that exclude one another.
Result<TrainingOptions> training_options(const TrainOptions& o, const DataSet& data,
                                         const MeshGroups& groups);
// trace: gets the aggregator's spans; may be null, else lent for as long as the strategy lives.
DataParallelOptions parallel_options(const TrainOptions& o, RankTrace* trace);
Result<ShardedOptions> sharded_options(const TrainOptions& o, OptimizerOptions optimizer,
                                       RankTrace* trace);

}  // namespace gradwire
