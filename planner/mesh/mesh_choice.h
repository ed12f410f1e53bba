// One way to divide a training step among the devices of a cluster.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainer/pipeline/generate.h"

namespace gradwire {

struct MeshChoice {
  int dp = 1;  // replicas
  int tp = 1;  // ranks that share every tensor
  // How, as `gradwire train --parallel` has it: "megatron", or of images "hybrid".
  std::string layout = "megatron";
  int pp = 1;                    // ranks of a pipeline
  PipelineSpec order = {};       // of the stages, where pp > 1
  int zero = 0;                  // ZeRO stage
  int accumulate = 1;            // micro-batches of a replica's step
  std::int64_t micro_batch = 1;  // samples
  std::string recompute = "none";
  std::string compressor = "none";  // of gradients

  int ranks() const { return dp * tp * pp; }
  // Pipes that go through the stages; 2 under chimera, each with half of the micro-batches.
  int pipes() const { return pp > 1 && order.kind == PipelineKind::kChimera ? 2 : 1; }
  // Whether a step has ended before the next one begins. Without it, the mathematics differ.
  bool has_flush() const { return pp == 1 || !is_asynchronous(order.kind); }
  int stages() const { return pp == 1 ? 1 : pp * order.stages_a_rank(); }
  // Stages that rank `rank` of the pipeline holds, by (pipe, stage).
  std::vector<std::pair<int, int>> stages_of(int rank) const;

  friend bool operator==(const MeshChoice&, const MeshChoice&) = default;
};

// As `gradwire train --parallel` reads it: "dp=2,tp=4,pp=4/1f1b,zero=1".
std::string parallel_text(const MeshChoice& choice);
// All of it: with micro-batches, recompute and compressor where they are not as without them.
std::string to_string(const MeshChoice& choice);
// Both for people: of more than a dozen stages the layers of the first ones and of the last one.
std::string brief_parallel_text(const MeshChoice& choice);
std::string brief_text(const MeshChoice& choice);

}  // namespace gradwire
