// Every generator with every number of ranks and micro-batches that tests go through.
#pragma once

#include <string>
#include <vector>

#include "trainer/pipeline/generate.h"

namespace gradwire {

struct PipelineCase {
  PipelineSpec spec;
  int ranks;
  int micro_batches;

  std::string text() const {
    return spec.text() + " p=" + std::to_string(ranks) + " m=" + std::to_string(micro_batches);
  }
  PipelineSchedule schedule() const {
    return generate_pipeline(spec, ranks, micro_batches).value();
  }
};

// Between neighbouring stages of different ranks.
inline int crossed_boundaries(const PipelineSchedule& schedule) {
  const std::vector<int>& rank_of = schedule.rank_of.front();
  int crossed = 0;
  for (std::size_t stage = 1; stage < rank_of.size(); ++stage) {
    crossed += rank_of[stage] != rank_of[stage - 1] ? 1 : 0;
  }
  return crossed;
}

inline std::vector<PipelineCase> every_pipeline() {
  std::vector<PipelineSpec> specs;
  for (const PipelineKind kind : kGeneratedPipelines) {
    if (is_asynchronous(kind)) continue;  // it has its steps already
    if (!has_chunks(kind)) specs.push_back({.kind = kind});
    for (int chunks = 1; has_chunks(kind) && chunks <= 4; ++chunks) {
      specs.push_back({.kind = kind, .chunks = chunks});
    }
  }
  specs.push_back({.kind = PipelineKind::kChimera, .doubling = true});
  std::vector<PipelineCase> cases;
  for (const PipelineSpec& spec : specs) {
    for (const int ranks : {1, 2, 3, 4, 5, 8}) {
      for (const int micro_batches : {1, 2, 3, 4, 6, 8, 13}) {
        // Some are defined for even numbers alone.
        if (!generate_pipeline(spec, ranks, micro_batches).has_value()) continue;
        cases.push_back({spec, ranks, micro_batches});
      }
    }
  }
  return cases;
}

}  // namespace gradwire
