// Divisions of a mesh's model into stages, as runs of layers that stay together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "gradwire/schedule.h"
#include "gradwire/status.h"
#include "planner/mesh/even_ranks.h"
#include "planner/mesh/mesh_choice.h"
#include "planner/mesh/mesh_problem.h"
#include "trainer/activations.h"

namespace gradwire {

// A stage is one or more runs, where plan_stages() may cut (stage_begins()).
class StageRuns {
 public:
  // `choice` has a pipeline. Errors as MeshModel::part() and cuts().
  static Result<StageRuns> of(const MeshProblem& problem, const MeshChoice& choice);

  std::size_t size() const { return begins_.size() - 1; }
  // The runs of each stage as the choice has them: as its order's layers say, else as runs cut.
  const std::vector<Range>& chosen() const { return chosen_; }
  // The layers of each stage, likewise.
  const std::vector<LayerRange>& cuts() const { return cuts_; }
  // The ranks of the pipeline with `amount(rank, place, layer)` of the layers of each run together:
  // place among the stages of the rank.
  using Amount = std::function<std::int64_t(std::size_t, std::size_t, std::size_t)>;
  StagedRanks ranks(const Amount& amount) const;
  // The stages of each rank.
  const std::vector<std::vector<int>>& stages() const { return stages_; }
  // As PipelineSpec::layers.
  std::vector<int> layers(const std::vector<Range>& cuts) const;

 private:
  std::vector<std::size_t> begins_;  // layers; the model's end behind the last
  std::vector<LayerRange> cuts_;
  std::vector<Range> chosen_;             // the same as runs
  std::vector<std::vector<int>> stages_;  // by rank
};

}  // namespace gradwire
