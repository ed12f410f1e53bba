// What each rank of a schedule without a flush does in each step, from one drain to the next.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/pipeline/op.h"

namespace gradwire {

// One stage a rank: one forward, one backward, and OPT behind the backwards of a step. Steps and
// micro-batches are counted from the last drain, and so are versions of the weights.
struct StreamRule {
  enum class Versions : std::uint8_t {
    kNewest,   // that a stage has at the forward (PipeDream)
    kInSync,   // the same on all stages (PipeDream's vertical sync)
    kDelayed,  // by a step (PipeDream-2BW)
  };
  int ranks = 1;
  int micro_batches = 1;  // of a step; 1 but for kDelayed
  Versions versions = Versions::kNewest;
  std::vector<int> layers = {};  // as PipelineSchedule::layers

  // Numbers modulo these stand for what is under way: at most `ranks` micro-batches on a stage, of
  // which a step's have consecutive numbers, and so many versions.
  int window() const;
  int version_window() const { return versions == Versions::kDelayed ? 2 : ranks; }
  // The most versions that a stage has at a time, the newest among them.
  int most_versions(int stage) const;
  // That forward and backward of a micro-batch read on a stage.
  std::int64_t version_of(int stage, std::int64_t micro) const;
  // Micro-batches that a stage's forwards are ahead of its backwards.
  int ahead(int stage) const { return ranks - 1 - stage; }

  // Operations of one stage in step `step` of `steps` between two drains, OPT last. Micro-batches
  // and versions are modulo the windows, or whole where these are 0, as long as they fit.
  std::vector<PipelineOp> step(int stage, std::int64_t step, std::int64_t steps, int micro_window,
                               int versions_window) const;
};

}  // namespace gradwire
