// One rank's parameters: those that an optimizer steps (the master), and what passes read of them.
// Under Demands::holds_master the former are the strategy's in a precision of 16 bits, and what
// passes read is what the strategy has written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gradwire/status.h"
#include "gradwire/tensor.h"
#include "trainer/layer_gate.h"
#include "trainer/memory/paged_tensors.h"
#include "trainer/model.h"
#include "trainer/step/compute_parameters.h"
#include "trainer/strategy/demands.h"
#include "trainer/strategy/parameter_keeper.h"
#include "trainer/training_options.h"

namespace gradwire {

// All memory is taken at birth. From the thread that trains, but for store(), which another may
// call while nobody refreshes.
class ParameterStore {
 public:
  // The model is borrowed.
  static Result<std::unique_ptr<ParameterStore>> create(const Model<float>& model,
                                                        const TrainingOptions& options,
                                                        const Demands& demands);

  // In fp32, in order of registration without gaps; empty where the strategy has them.
  std::span<float> master() const {
    return params_.size() > 0 ? params_.all() : std::span<float>();
  }
  // The master, or, where the strategy has that, what passes read in 16 bits.
  const PagedTensors& paged() const { return params_.size() > 0 ? params_ : compute_.stored(); }
  // Hash of all bytes of what passes read, before they are widened.
  Result<std::uint64_t> hash();
  // They become the seed's, or these: in fp32 and in order of registration.
  Status draw(std::uint64_t seed);
  Status start_from(std::vector<float> values);
  // All of parameter `index` as the last of these calls had it, in fp32; until forget().
  void first_values(int index, std::span<float> values) const;
  void forget() { given_ = {}; }

  // The master may have changed: refresh() makes anew what passes read.
  void master_changed() { fresh_ = false; }
  Status refresh();
  // Master elements [first, first + part.size()) have these values: so have those that passes read,
  // without refresh().
  Status store(std::span<const float> part, std::size_t first);
  // What passes read, valid until the master changes; with a gate, while it has a layer open.
  std::span<const float> values() const { return values_; }

  // Who brings layers' parameters to values(): made here, or the keeper's; null: they are there.
  struct Gate {
    std::unique_ptr<LayerGate> own;
    LayerGate* use = nullptr;
  };
  Result<Gate> gate(ParameterKeeper& keeper) const;

 private:
  Status write_first();
  Status write(int index, std::span<float> values);
  ParameterStore(const Model<float>& model, const TrainingOptions& options, const Demands& demands)
      : model_(model),
        places_(options.places),
        precision_(options.precision),
        layer_by_layer_(demands.layer_by_layer) {}

  const Model<float>& model_;
  MemoryPlaces places_;
  Precision precision_;
  bool layer_by_layer_;
  PagedTensors params_;
  ComputeParameters compute_;
  std::uint64_t seed_ = 0;
  std::vector<float> given_;  // by start_from(); empty: values are the seed's
  bool fresh_ = false;        // compute_ has the master's last values
  std::span<const float> values_;
};

}  // namespace gradwire
