#include "trainer/accounts/layer_traffic.h"

namespace gradwire {

std::string_view to_string(LayerDivision division) {
  switch (division) {
    case LayerDivision::kDataParallel: return "data parallel";
    case LayerDivision::kPartitionOutput: return "partition output";
    case LayerDivision::kColumnParallel: return "column parallel";
    case LayerDivision::kReduceOutput: return "reduce output";
  }
  return "?";
}

PhaseElems layer_traffic(LayerDivision division, const LayerSize& size, std::int64_t samples) {
  switch (division) {
    case LayerDivision::kDataParallel: return {.gradients = 2 * size.weights};
    case LayerDivision::kPartitionOutput:
      return {.forward = samples * size.inputs, .backward = samples * size.inputs};
    case LayerDivision::kColumnParallel: return {.backward = 2 * samples * size.inputs};
    case LayerDivision::kReduceOutput: return {.forward = 2 * samples * size.outputs};
  }
  return {};
}

LayerDivision least_traffic(const LayerSize& size, std::int64_t samples) {
  LayerDivision least = kLayerDivisions.front();
  for (const LayerDivision division : kLayerDivisions) {
    const std::int64_t total = layer_traffic(division, size, samples).total();
    if (total < layer_traffic(least, size, samples).total()) least = division;
  }
  return least;
}

double sent_by_rank(std::int64_t elems, std::int64_t ranks) {
  const auto p = static_cast<double>(ranks);
  return static_cast<double>(elems) * (p - 1) / p;
}

}  // namespace gradwire
