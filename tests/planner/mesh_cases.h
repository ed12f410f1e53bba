// Problems of meshes for tests: small models on small clusters.
#pragma once

#include <utility>

#include "planner/mesh/mesh_search.h"
#include "trainer/models.h"

namespace gradwire {

inline MeshModel small_gpt(std::int64_t layers, std::int64_t width = 16, std::int64_t heads = 4) {
  return MeshModel([=](const TensorShare& share, bool flush) {
    ModelOptions options{"gpt"};
    options.width = width;
    options.layers = layers;
    options.heads = heads;
    options.tied = flush;
    options.share = share;
    return make_model<float>(options, {8, 1, 1}, 32);
  });
}

inline MeshModel small_mlp() {
  return MeshModel([](const TensorShare& share, bool /*flush*/) {
    ModelOptions options{"mlp"};
    options.hidden = {64, 48, 48, 32};
    options.share = share;
    return make_model<float>(options, {1, 8, 8}, 10);
  });
}

inline MeshProblem mesh_problem(const Cluster& cluster, MeshModel& model, const MeshRates& rates,
                                std::int64_t batch) {
  return {.cluster = &cluster, .model = &model, .rates = &rates, .batch = batch, .labels = 8};
}

}  // namespace gradwire
