// How long devices compute and code, as far as a mesh's cost asks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "planner/cluster/cluster.h"

namespace gradwire {

// Nanoseconds of a layer's micro-batch.
struct LayerTicks {
  std::int64_t forward = 0;
  std::int64_t backward_input = 0;
  std::int64_t backward_weight = 0;
};

// A layer as a device has it: some of a whole layer's products, of so many samples.
struct LayerShare {
  const ProfiledLayer* whole = nullptr;  // its shape
  LayerCost macs = {};                   // here, of a sample
  std::int64_t rows = 1;
};

// Nanoseconds of a gradient that a processor encodes, or decodes one rank's payload of.
struct CodecTicks {
  std::int64_t encode = 0;
  std::int64_t decode = 0;
};

class MeshRates {
 public:
  virtual ~MeshRates() = default;
  // Nanoseconds of so many multiplications with their additions on a device of the type.
  virtual std::int64_t compute_ticks(const DeviceType& type, std::int64_t macs) const = 0;
  // nullopt where no layer of the shape was measured: its products are what is known of it.
  virtual std::optional<LayerTicks> layer_ticks(const DeviceType& type,
                                                const LayerShare& layer) const = 0;
  // Nanoseconds of an optimizer's step of so many parameters, of each of which it reads and writes
  // `moved` bytes; 0 where nothing says how long that takes.
  virtual std::int64_t update_ticks(const DeviceType& type, const std::string& optimizer,
                                    double elems, double moved) const = 0;
  // Nanoseconds of adding a micro-batch's gradients to those before it; 0 where that was not
  // measured.
  virtual std::int64_t sum_ticks(const DeviceType& type, double elems) const = 0;
  // On the processor that computes. nullopt where the method was not measured: codec_byte().
  virtual std::optional<CodecTicks> codec_ticks(const DeviceType& type, const std::string& method,
                                                double elems) const = 0;
  // Nanoseconds a compressor takes for a byte of gradients in one pass (encode, or decode), beside
  // computations.
  virtual double codec_byte(const std::string& compressor) const = 0;
};

// Of the cluster's file, or of the profiles that it names: there what was measured of a layer's
// shape, at the micro-batch's samples (time_of()); of a layer that ranks share its part of the
// whole layer's products, and of a backward pass those of inputs and of weights. Nesterov takes as
// long as sgd; an optimizer that was not measured what it moves over the device's
// memory_bandwidth, without one no time. Codecs that were not measured do 35e9
// bytes a second, as `gradwire sim` has it.
class ClusterRates final : public MeshRates {
 public:
  std::int64_t compute_ticks(const DeviceType& type, std::int64_t macs) const override {
    return gradwire::compute_ticks(type, macs);
  }
  std::optional<LayerTicks> layer_ticks(const DeviceType& type,
                                        const LayerShare& layer) const override;
  std::int64_t update_ticks(const DeviceType& type, const std::string& optimizer, double elems,
                            double moved) const override;
  std::int64_t sum_ticks(const DeviceType& type, double elems) const override;
  std::optional<CodecTicks> codec_ticks(const DeviceType& type, const std::string& method,
                                        double elems) const override;
  double codec_byte(const std::string& /*compressor*/) const override { return 1 / 35.0; }
};

}  // namespace gradwire
