// What the ranks of a mesh hold, as runs do (trainer/accounts/run_memory.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "planner/mesh/mesh_choice.h"
#include "planner/mesh/mesh_problem.h"
#include "trainer/accounts/run_memory.h"
#include "trainer/stages/stage_plan.h"

namespace gradwire {

struct MeshRankMemory {
  int rank = 0;                  // of the pipeline; of tp the one that has the longest parts
  std::vector<int> stages = {};  // ascending
  std::int64_t parameters = 0;   // elements
  MemoryByClass bytes = {};
  std::int64_t total() const;
};

// Keeps the stages of the last question, which ZeRO stages and compressors share. Not thread-safe.
class MeshMemory {
 public:
  explicit MeshMemory(const MeshProblem& problem) : problem_(problem) {}

  // Of each rank of the pipeline. Without what exchanges keep. Errors: those of
  // generate_pipeline(), plan_stages(), plan_stream() and run_memory().
  Result<std::vector<MeshRankMemory>> of(const MeshChoice& choice);

 private:
  Status plan(const MeshChoice& choice);

  const MeshProblem& problem_;
  std::string planned_;  // of which `plans_` are
  Status planning_;
  std::vector<StagePlan> plans_;
};

}  // namespace gradwire
