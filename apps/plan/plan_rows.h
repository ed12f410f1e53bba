// The rows of a plan, one for each stage of ZeRO.
#pragma once

#include <string>
#include <vector>

#include "apps/plan/plan_question.h"
#include "apps/plan/plan_stages.h"

namespace gradwire {

struct PlanMemory {
  int stage = 0;
  MemoryRow bytes;
  double state_per_param = 0;  // bytes, of a parameter that the rank's layers have
  double saving = 1;
  bool fits = true;
  int rank = 0;  // of a pipeline: the one with most
};
Result<std::vector<PlanMemory>> plan_memory(const PlanQuestion& question, const PlanRanks& ranks);

// One operation of a step over the data-parallel ranks.
struct PlanTraffic {
  std::string what;  // "gradients, reduce_scatter"
  std::string algorithm;
  double wire_bytes = 0;  // sent by one rank
  double seconds = 0;     // simulated over the links
};
struct PlanStep {
  std::string name;  // "0", "3", "qsgd:bits=4, two-hop"
  std::vector<PlanTraffic> traffic;
  double wire_bytes() const;
  double seconds() const;
};
// Stages 0 to 3 (0 without main gradients), then the compressed exchanges of stage 0, if a
// compressor is asked for.
Result<std::vector<PlanStep>> plan_steps(const PlanQuestion& question, const PlanRanks& ranks);

}  // namespace gradwire
