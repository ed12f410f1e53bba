#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text.h"
#include "planner/search/partitioners.h"

namespace gradwire {
namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

// The best partition of the first layers on the first devices.
struct Prefix {
  std::int64_t ticks = kNone;
  int layer = 0;   // the last stage's first
  int device = 0;  // likewise
};

// [layers][devices], of `devices` devices in all.
std::vector<std::vector<Prefix>> best_prefixes(const StageCost& cost, int devices) {
  const auto columns = static_cast<std::size_t>(devices) + 1;
  std::vector<std::vector<Prefix>> best(static_cast<std::size_t>(cost.layers()) + 1,
                                        std::vector<Prefix>(columns));
  best[0][0].ticks = 0;
  for (int layer = 1; layer <= cost.layers(); ++layer) {
    for (int device = 1; device <= devices; ++device) {
      Prefix& here = best[static_cast<std::size_t>(layer)][static_cast<std::size_t>(device)];
      for (int from = 0; from < layer; ++from) {
        for (int first = from == 0 ? 0 : 1; first < (from == 0 ? 1 : device); ++first) {
          const Prefix& before =
              best[static_cast<std::size_t>(from)][static_cast<std::size_t>(first)];
          const PlacedStage stage{from, layer, first, device};
          if (before.ticks == kNone || !pipedream_fits(cost, stage, devices)) continue;
          const std::int64_t ticks = std::max({before.ticks, pipedream_cut_ticks(cost, from, first),
                                               pipedream_stage_ticks(cost, stage)});
          if (ticks < here.ticks) here = {ticks, from, first};
        }
      }
    }
  }
  return best;
}

}  // namespace

std::int64_t pipedream_stage_ticks(const StageCost& cost, const PlacedStage& stage) {
  const double m = stage.replicas();
  const double sent = cost.options().gradient_ratio * 4 * (m - 1) / m *
                      static_cast<double>(cost.parameter_bytes(stage)) * cost.slowest_byte(stage);
  return cost.forward(stage) + cost.backward(stage) +
         static_cast<std::int64_t>(std::ceil(sent / m));
}

std::int64_t pipedream_cut_ticks(const StageCost& cost, int layer, int device) {
  return 2 * cost.transfer(layer, device);
}

bool pipedream_fits(const StageCost& cost, const PlacedStage& stage, int devices) {
  const int from_it_on = devices - stage.first_device;
  return cost.fits(stage, (from_it_on + stage.replicas() - 1) / stage.replicas());
}

Result<StagePartition> partition_pipedream(const StageCost& cost) {
  StagePartition best{.ticks = kNone};
  for (int devices = 1; devices <= cost.devices(); ++devices) {
    const auto prefixes = best_prefixes(cost, devices);
    const std::int64_t ticks = prefixes.back().back().ticks;
    if (ticks >= best.ticks) continue;
    best.ticks = ticks;
    best.stages.clear();
    int device = devices;
    for (int layer = cost.layers(); layer > 0;) {
      const Prefix& one =
          prefixes[static_cast<std::size_t>(layer)][static_cast<std::size_t>(device)];
      best.stages.insert(best.stages.begin(), {one.layer, layer, one.device, device});
      layer = one.layer;
      device = one.device;
    }
  }
  if (best.ticks != kNone) return best;
  return Status(Code::kInvalidArgument,
                format("pipedream: no partition of %d layers fits %d devices (expected more memory "
                       "or devices)",
                       cost.layers(), cost.devices()));
}

}  // namespace gradwire
