// What checkpoints of version 1 called the state of a run, under its present names.
#pragma once

#include "trainer/checkpoint/manifest.h"

namespace gradwire {

// Of a manifest of version 1, the tensors that strategy_state.h names otherwise:
//   trainer/NAME.KIND         optimizer/NAME.KIND, in the parameter's shape
//   rank-R/hook/NAME.shard    slice R of master/NAME
//   rank-R/hook/NAME.KIND     slice R of optimizer/NAME.KIND
//   rank-R/hook/sharded.steps optimizer/steps, rank 0's
//   rank-R/hook/reduce/X      dp-R/gradients/X; of a run that did not shard, rank-R/hook/X
//   rank-R/hook/gather/X      dp-R/parameters/X
// All others, and those of later versions, stay as they are.
CheckpointManifest with_present_names(CheckpointManifest manifest);

}  // namespace gradwire
