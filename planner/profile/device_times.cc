#include "planner/profile/device_times.h"

#include <algorithm>

#include "gradwire/registry.h"

namespace gradwire {
namespace {

const MeasuredTimes kNone;

const MeasuredTimes& times_in(const std::map<std::string, MeasuredTimes>& all,
                              const std::string& name) {
  const auto found = all.find(name);
  return found == all.end() ? kNone : found->second;
}

}  // namespace

std::string canonical_method(const std::string& spec) {
  const auto made = Registry::builtin().make(spec);
  return made.has_value() ? made.value()->spec() : spec;
}

DeviceTimes::DeviceTimes(const Profile& profile) : sums_(sum_times(profile)) {
  for (const ProfiledLayer& one : profile.layers) {
    if (layer(one) == nullptr) layers_.emplace_back(one, layer_times(profile, one));
  }
  for (const ProfiledOptimizer& one : profile.optimizers) {
    optimizers_[one.name] = optimizer_times(profile, one.name);
  }
  for (const ProfiledCodec& one : profile.codecs) {
    const std::string method = canonical_method(one.spec);
    encode_[method] = encode_times(profile, one.spec);
    decode_[method] = decode_times(profile, one.spec);
  }
}

const LayerTimes* DeviceTimes::layer(const ProfiledLayer& shape) const {
  const auto found = std::ranges::find_if(
      layers_, [&](const auto& known) { return same_shape(known.first, shape); });
  return found == layers_.end() ? nullptr : &found->second;
}

const MeasuredTimes& DeviceTimes::optimizer(const std::string& name) const {
  return times_in(optimizers_, name);
}
const MeasuredTimes& DeviceTimes::encode(const std::string& compressor) const {
  return times_in(encode_, compressor);
}
const MeasuredTimes& DeviceTimes::decode(const std::string& compressor) const {
  return times_in(decode_, compressor);
}

}  // namespace gradwire
