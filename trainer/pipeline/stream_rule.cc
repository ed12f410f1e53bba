#include "trainer/pipeline/stream_rule.h"

#include <algorithm>

namespace gradwire {

int StreamRule::window() const {
  const int steps = (ranks + micro_batches - 1) / micro_batches + 1;
  return micro_batches * steps;
}

int StreamRule::most_versions(int stage) const {
  switch (versions) {
    case Versions::kNewest: return ranks - stage;
    case Versions::kInSync: return ranks;
    case Versions::kDelayed: break;
  }
  return 2;
}

std::int64_t StreamRule::version_of(int stage, std::int64_t micro) const {
  std::int64_t version = micro - (ranks - 1);
  if (versions == Versions::kNewest) version = micro - ahead(stage);
  if (versions == Versions::kDelayed) version = micro / micro_batches - 1;
  return std::max<std::int64_t>(version, 0);
}

std::vector<PipelineOp> StreamRule::step(int stage, std::int64_t step, std::int64_t steps,
                                         int micro_window, int versions_window) const {
  std::vector<PipelineOp> ops;
  const std::int64_t all = micro_batches * steps;
  const auto wrapped = [](std::int64_t number, int window) {
    return static_cast<std::uint16_t>(window == 0 ? number : number % window);
  };
  const auto pass = [&](PipelineOpKind kind, std::int64_t micro) {
    ops.push_back({.kind = kind,
                   .stage = static_cast<std::uint16_t>(stage),
                   .micro = wrapped(micro, micro_window),
                   .version = wrapped(version_of(stage, micro), versions_window)});
  };
  const auto of_weights = [&](PipelineOpKind kind, std::int64_t version) {
    ops.push_back({.kind = kind,
                   .stage = static_cast<std::uint16_t>(stage),
                   .version = wrapped(version, versions_window)});
  };
  const std::int64_t first = step * micro_batches;
  const std::int64_t next = first + micro_batches;
  for (std::int64_t micro = 0; step == 0 && micro < std::min<std::int64_t>(ahead(stage), all);
       ++micro) {
    pass(PipelineOpKind::kForward, micro);
  }
  for (std::int64_t micro = first; micro < next; ++micro) {
    if (micro + ahead(stage) < all) pass(PipelineOpKind::kForward, micro + ahead(stage));
    pass(PipelineOpKind::kBackward, micro);
  }
  // Copies are there of what later micro-batches read beside the newest, version `step` so far.
  const auto is_read_from = [&](std::int64_t version, std::int64_t micro) {
    return micro < all && version_of(stage, micro) <= version &&
           version_of(stage, all - 1) >= version;
  };
  for (std::int64_t version = version_of(stage, first); version < step; ++version) {
    const bool is_kept = is_read_from(version, (version + 1) * micro_batches);
    if (is_kept && !is_read_from(version, next)) of_weights(PipelineOpKind::kDropWeights, version);
  }
  if (is_read_from(step, next)) of_weights(PipelineOpKind::kStashWeights, step);
  of_weights(PipelineOpKind::kOptimizerStep, step);
  return ops;
}

}  // namespace gradwire
