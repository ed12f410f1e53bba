// Stages by which ranks have nearly equal times on their devices.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "gradwire/status.h"
#include "planner/mesh/known_links.h"
#include "planner/mesh/mesh_choice.h"
#include "planner/mesh/mesh_problem.h"

namespace gradwire {

// Runs cut stages by their products, which is not by their time where devices are uneven, or where
// a profile says that layers do other work than products. Keeps what it was asked. Not thread-safe.
class TimedStages {
 public:
  explicit TimedStages(const MeshProblem& problem) : problem_(problem), links_(*problem.cluster) {}

  // Divisions worth a simulation, each the layers of every stage as PipelineSpec::layers: the
  // slowest rank takes as little as it can of a micro-batch's time where each has one stage. Where
  // ranks have several, what even_ranks() finds, and that whose slowest stage takes least, as
  // stages that wait for each other may cost more than ranks that are uneven. Without those that
  // are not a hundredth faster than with the stages that runs cut. `choice` has a pipeline, and no
  // layers of its own; layers stay together as plan_stages() keeps them. Errors as mesh_costs().
  using Divisions = std::vector<std::vector<int>>;
  Result<Divisions> of(const MeshChoice& choice);

 private:
  // dp, tp, pp, pipes, whether a V, stages, flush, micro-batch's samples, recompute
  using Key = std::tuple<int, int, int, int, bool, int, bool, std::int64_t, std::string>;
  Result<Divisions> cut(const MeshChoice& choice);

  const MeshProblem& problem_;
  KnownLinks links_;
  std::map<Key, Divisions> known_;
};

}  // namespace gradwire
