// A profile's times, found by what is asked for once for many questions.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planner/profile/profile.h"

namespace gradwire {

// The canonical text of a compressor (Compressor::spec()), so that its keys may stand in any order;
// what is no compressor stays as it is.
std::string canonical_method(const std::string& spec);

class DeviceTimes {
 public:
  explicit DeviceTimes(const Profile& profile);

  // By samples of a micro-batch. Null where no layer of that shape was measured (its name, rows and
  // times do not count).
  const LayerTimes* layer(const ProfiledLayer& shape) const;
  // By elements; empty where it was not measured. A compressor by its canonical text
  // (Compressor::spec()).
  const MeasuredTimes& optimizer(const std::string& name) const;
  const MeasuredTimes& encode(const std::string& compressor) const;
  const MeasuredTimes& decode(const std::string& compressor) const;
  // Gradients of a micro-batch that are added to those before it.
  const MeasuredTimes& sums() const { return sums_; }

 private:
  std::vector<std::pair<ProfiledLayer, LayerTimes>> layers_;
  std::map<std::string, MeasuredTimes> optimizers_;
  std::map<std::string, MeasuredTimes> encode_;  // by the canonical text
  std::map<std::string, MeasuredTimes> decode_;
  MeasuredTimes sums_;
};

}  // namespace gradwire
