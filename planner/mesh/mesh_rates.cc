#include "planner/mesh/mesh_rates.h"

#include <algorithm>
#include <cmath>

namespace gradwire {
namespace {

constexpr double kLongestTicks = 0x1p50;

std::int64_t ticks_of(double seconds) {
  constexpr double kNanoseconds = 1e9;
  return static_cast<std::int64_t>(
      std::ceil(std::clamp(seconds * kNanoseconds, 0.0, kLongestTicks)));
}

// What is here of what the whole has; all of it where the whole has no products.
double part_of(std::int64_t here, std::int64_t whole) {
  return whole == 0 ? 1 : static_cast<double>(here) / static_cast<double>(whole);
}

std::int64_t ticks_at(const MeasuredTimes& times, double size) {
  const auto seconds = time_of(times, std::llround(size));
  return seconds ? ticks_of(*seconds) : 0;
}

}  // namespace

std::optional<LayerTicks> ClusterRates::layer_ticks(const DeviceType& type,
                                                    const LayerShare& layer) const {
  if (type.times == nullptr || layer.whole == nullptr) return std::nullopt;
  const LayerTimes* measured = type.times->layer(*layer.whole);
  if (measured == nullptr) return std::nullopt;
  const ProfiledLayer& whole = *layer.whole;
  const LayerCost& macs = layer.macs;
  const double forward = *time_of(measured->forward, layer.rows);
  const double backward = *time_of(measured->backward, layer.rows);
  const std::int64_t here = macs.input_macs + macs.weight_macs;
  const double all_here = backward * part_of(here, whole.backward_macs);
  // Without products nothing is known of its halves: gradients of inputs are what others wait for.
  const double weights = here == 0 ? 0 : all_here * part_of(macs.weight_macs, here);
  return LayerTicks{ticks_of(forward * part_of(macs.forward_macs, whole.forward_macs)),
                    ticks_of(all_here - weights), ticks_of(weights)};
}

std::int64_t ClusterRates::update_ticks(const DeviceType& type, const std::string& optimizer,
                                        double elems, double moved) const {
  if (elems < 1) return 0;
  if (type.memory_bandwidth > 0) return ticks_of(elems * moved / type.memory_bandwidth);
  if (type.times == nullptr) return 0;
  const std::string measured = optimizer == "nesterov" ? "sgd" : optimizer;
  return ticks_at(type.times->optimizer(measured), elems);
}

std::int64_t ClusterRates::sum_ticks(const DeviceType& type, double elems) const {
  if (type.times == nullptr || elems < 1) return 0;
  return ticks_at(type.times->sums(), elems);
}

std::optional<CodecTicks> ClusterRates::codec_ticks(const DeviceType& type,
                                                    const std::string& method, double elems) const {
  if (type.times == nullptr || type.times->encode(method).empty()) return std::nullopt;
  return CodecTicks{ticks_at(type.times->encode(method), elems),
                    ticks_at(type.times->decode(method), elems)};
}

}  // namespace gradwire
