// What `gradwire plan` is asked, and its flags.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adapters/trainer/mesh/parallel_spec.h"
#include "apps/flags.h"
#include "apps/plan/plan_given.h"
#include "gradwire/link_model.h"
#include "trainer/accounts/training_memory.h"
#include "trainer/layers/layer.h"

namespace gradwire {

inline constexpr int kZeroStages = 4;  // 0 to 3

// A search for a mesh.
struct MeshFlags {
  std::string cluster;  // a file; empty: there is no search
  std::int64_t batch = 0;
  std::string compressors = "none";  // with ';' between
  bool allow_stale = false;
  std::int64_t rows = 20;
  std::int64_t why = 0;  // a row from 1; 0: none
  std::string html;
  std::string write;
  GivenMesh given = {};
};

struct PlanQuestion {
  double params = 0;
  TransformerShape transformer;
  std::string model = "gpt";  // of the transformer's shape; else one for images, of
  SampleShape image = {0, 0, 0};
  std::int64_t classes = 10;
  std::vector<std::int64_t> hidden{128, 64};  // mlp
  std::int64_t zero = 0;                      // the stage that is asked for; all are printed
  std::int64_t data_ranks = 1;
  ParallelSpec parallel = {};
  std::int64_t pipeline_stages = 1;  // --pipeline; `parallel` has them, too
  std::string precision = "bf16";
  std::string optimizer = "adamw";
  bool no_main_grads = false;
  std::int64_t accumulate = 1;  // micro-batches of a rank's step
  std::string accumulate_policy = "sum-then-reduce";
  std::string recompute = "none";
  std::int64_t device_mem = 0;  // bytes; 0: not limited
  std::string compressor;
  LinkModel links;
  bool memory = false;
  bool cost = false;
  bool explain = false;
  std::string json;
  MeshFlags mesh = {};
};

// kInvalidArgument names the flag, the value seen and the value wanted.
Result<Flags::Outcome> read_plan_flags(const std::vector<std::string>& args,
                                       PlanQuestion& question);

// How ranks of tp share the model's tensors in a search: "megatron", or of images "hybrid".
std::string search_layout(const PlanQuestion& question);
// Whether micro-batches are exchanged one by one.
bool reduces_each(const PlanQuestion& question);
// Ranks that hold the same part of the model.
std::int64_t replicas(const PlanQuestion& question);
// Whether a step has ended before the next one begins.
bool has_flush(const PlanQuestion& question);
// Of ZeRO, from 0: those that a run can have.
int zero_stages(const PlanQuestion& question);
// The question of one ZeRO stage. Names of precision and optimizer are checked.
Result<MemoryQuestion> memory_question(const PlanQuestion& question, int stage);

}  // namespace gradwire
