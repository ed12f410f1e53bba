// What a mesh is searched for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/cluster/cluster.h"
#include "planner/mesh/mesh_model.h"
#include "planner/mesh/mesh_rates.h"
#include "trainer/pipeline/generate.h"
#include "trainer/precision.h"

namespace gradwire {

struct MeshProblem {
  // Borrowed, all three.
  const Cluster* cluster = nullptr;
  MeshModel* model = nullptr;
  const MeshRates* rates = nullptr;
  std::int64_t batch = 1;           // samples of a step, over all ranks
  std::int64_t device_mem = 0;      // bytes of every device; 0: as the cluster has them
  std::string optimizer = "adamw";  // sgd, nesterov, adamw, lamb
  double momentum = 0.9;            // of sgd and nesterov
  Precision precision = Precision::kF32;
  bool main_gradients = true;
  std::int64_t labels = 1;                       // of a sample
  std::vector<std::string> compressors{"none"};  // of gradients
  // Of gradients that are exchanged together, as they are sent uncompressed.
  std::int64_t bucket_bytes = std::int64_t{4} << 20;
  bool shares_tensors = true;  // whether ranks may share the model's tensors (tp above 1)
  // How they do (MeshChoice::layout). "hybrid" has no pipelines, and whole samples on every rank.
  std::string layout = "megatron";
  bool allow_stale = false;  // schedules without a flush, too
  // Schedules of stages; empty: all that are known, of which `allow_stale` says.
  std::vector<PipelineSpec> orders = {};
  // Whether stages are cut otherwise than runs cut them, too: by their time, and where a rank has
  // no room for them by their memory.
  bool cuts_stages = true;

  // Of an element of gradients and parameters that is sent.
  double element_bytes() const { return precision == Precision::kF32 ? 4 : 2; }
};

}  // namespace gradwire
