// What `gradwire plan --explain` says of a model: how its layers may be divided, and what that
// sends and saves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/plan/plan_question.h"
#include "trainer/accounts/model_products.h"

namespace gradwire {

// Layers of one size in the same place of their blocks ("block*.mlp.fc"), or a single one.
struct ExplainedLayer {
  ModelProduct product;
  int count = 1;
  LayerDivision least = LayerDivision::kDataParallel;
};

// A micro-batch of a gpt on so many ranks that share its tensors. Bytes of one rank.
struct ExplainedTensors {
  std::int64_t ranks = 1;
  double block_bytes = 0;  // sent for all blocks, in fp32 as gradwire train computes
  double end_bytes = 0;    // sent for embedding and head
  // Activations as published, in 16 bits, without and with sequence=on.
  double published = 0;
  double published_sequence = 0;
  // As gradwire train keeps them, in fp32; none where it has no such model (a vocabulary smaller
  // than the ranks, positions that they do not divide).
  std::optional<double> run;
  std::optional<double> run_sequence;
};

struct PlanExplained {
  std::int64_t ranks = 1;    // of a stage: replicas times ranks that share tensors
  std::int64_t samples = 1;  // of a step, on all of them
  std::int64_t parameters = 0;
  std::vector<ExplainedLayer> layers;  // those with weights
  ModelTraffic traffic;
  std::vector<KindOfWork> work;
  std::vector<ExplainedTensors> tensors;  // of a gpt: 2, 4, 8 and tp= where they divide its heads
};
// Errors as plan_model() and run_memory().
Result<PlanExplained> explain_plan(const PlanQuestion& question);

}  // namespace gradwire
