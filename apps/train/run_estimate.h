// What a training run will hold in memory, before anything of it is allocated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/train/rank_run.h"
#include "apps/train/train_options.h"
#include "base/mesh.h"
#include "gradwire/status.h"
#include "trainer/accounts/run_memory.h"

namespace gradwire {

// Closed forms of the model's shapes for one rank; without the data set and what exchanges keep.
// kInvalidArgument for an optimizer that exchanges by itself. Of the rank at `at`; `stages`: of a
// pipeline the rank's, or null.
Result<RunMemory> planned_memory(const TrainOptions& options, const Problem& problem,
                                 const MeshCoordinates& at, const MeshSizes& sizes,
                                 const StagePlan* stages);

// Bytes of main memory.
struct RunEstimate {
  std::int64_t parameters = 0;  // of the model; a number, no bytes
  // Of rank 0, which has no less than another: {"gradients", 4096}, ... Of stages of a pipeline: of
  // the rank whose stages have most.
  std::vector<std::pair<std::string, std::int64_t>> classes;
  int ranks = 1;
  // Of the ranks of a pipeline, in its order, each of which has as many replicas; else empty.
  std::vector<std::int64_t> by_stage = {};
  int tensor_ranks = 1;   // of each rank of a pipeline, or of a replica
  bool at_least = false;  // a mode or an optimizer keeps more than what is counted here

  std::int64_t of_rank() const;
  std::int64_t total() const;  // of `ranks` ranks
};
// Where the mode or the optimizer has no closed form: parameters, gradients and activations alone.
// Errors as planned_memory().
Result<RunEstimate> estimate_run(const TrainOptions& options, const Problem& problem, int ranks);
// "16 MiB (parameters 8 MiB, gradients 8 MiB) for each of 2 ranks".
std::string to_text(const RunEstimate& estimate);

// kOutOfMemory where `ranks_here` of the run's `ranks`, which share this host, need more than it
// has, or this process more than it can get: says how much that is, and what limits it. What cannot
// be estimated passes.
Status check_room(const TrainOptions& options, const Problem& problem, int ranks, int ranks_here,
                  bool one_process);

}  // namespace gradwire
