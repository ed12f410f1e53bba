// What the ranks of a mesh hold, as runs do (trainer/accounts/run_memory.h).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "gradwire/status.h"
#include "planner/mesh/mesh_choice.h"
#include "planner/mesh/mesh_exchange.h"
#include "planner/mesh/mesh_problem.h"
#include "trainer/accounts/run_memory.h"
#include "trainer/stages/stage_plan.h"

namespace gradwire {

struct MeshRankMemory {
  int rank = 0;                  // of the pipeline; of tp the one that has the longest parts
  std::vector<int> stages = {};  // ascending
  // Of each of them: micro-batches whose activations it holds at a time. Empty without a pipeline.
  std::vector<std::int64_t> contexts = {};
  std::int64_t parameters = 0;  // elements
  MemoryByClass bytes = {};
  // At most, of gradients on their way under ZeRO 2 and 3, beside what is held: how many of them
  // there are at a time is a matter of what the exchange takes.
  std::int64_t on_their_way = 0;
  std::int64_t total() const;
  // What its device must have room for.
  std::int64_t most() const { return total() + on_their_way; }
};

// Keeps the stages of the last question, which ZeRO stages and compressors share. Not thread-safe.
class MeshMemory {
 public:
  explicit MeshMemory(const MeshProblem& problem) : problem_(problem) {}

  // Of each rank of the pipeline. `compression` is choice's. Errors: those of generate_pipeline(),
  // plan_stages(), plan_stream(), run_memory() and mesh_held().
  Result<std::vector<MeshRankMemory>> of(const MeshChoice& choice,
                                         const MeshCompression& compression);

  // Bytes that all ranks of the pipeline hold together at least: parameters, gradients and the
  // optimizer's, without activations and exchanges. No stages are planned. Errors as of
  // MeshModel::part().
  Result<std::int64_t> least(const MeshChoice& choice);

 private:
  // What mesh_held() depends on, of one problem: tp, replicas, ZeRO stage, micro-batches (whether
  // several), compressor, and the layers that the rank has.
  using HeldKey = std::tuple<int, int, int, bool, bool, std::string, std::vector<std::size_t>>;
  Status plan(const MeshChoice& choice);
  Result<std::int64_t> held(const MeshChoice& choice, const MeshCompression& compression,
                            const Model<float>& part, std::span<const LayerRange> layers);

  const MeshProblem& problem_;
  std::string planned_;  // of which `plans_` are
  Status planning_;
  std::vector<StagePlan> plans_;
  std::map<HeldKey, std::int64_t> held_;
};

}  // namespace gradwire
