// How long devices compute and code, as far as a mesh's cost asks.
#pragma once

#include <cstdint>
#include <string>

#include "planner/cluster/cluster.h"

namespace gradwire {

class MeshRates {
 public:
  virtual ~MeshRates() = default;
  // Nanoseconds of so many multiplications with their additions on a device of the type.
  virtual std::int64_t compute_ticks(const DeviceType& type, std::int64_t macs) const = 0;
  // Nanoseconds a compressor takes for a byte of gradients in one pass (encode, or decode).
  virtual double codec_byte(const std::string& compressor) const = 0;
};

// Of the cluster's file, or of the profiles that it names. It has no rate of codecs: as `gradwire
// sim` has it, 35e9 bytes a second.
class ClusterRates final : public MeshRates {
 public:
  std::int64_t compute_ticks(const DeviceType& type, std::int64_t macs) const override {
    return gradwire::compute_ticks(type, macs);
  }
  double codec_byte(const std::string& /*compressor*/) const override { return 1 / 35.0; }
};

}  // namespace gradwire
