// What layers compute with, where that is not the optimizer's own copy of the parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "trainer/layer_gate.h"
#include "trainer/memory/memory_arena.h"
#include "trainer/memory/paged_tensors.h"
#include "trainer/model.h"
#include "trainer/precision.h"

namespace gradwire {

// What lies in the second arena, the host's, beside the device's.
enum class Offload : std::uint8_t {
  kNone,
  kOptimizer,   // moments and fp32 parameters: gradients go there, new parameters come back
  kParameters,  // and what layers compute with: it comes for each layer's turn
};
// "none", "optimizer", "parameters".
std::string_view to_string(Offload offload);
Result<Offload> parse_offload(std::string_view text);

// Copies of the optimizer's fp32 parameters (the master), made anew once a step.
//
//   precision  offload     copy                          while a layer computes
//   fp32       none        the master itself             -
//   16 bits    none        16 bits, device               widened to fp32
//   fp32       optimizer   fp32, device                  -
//   16 bits    optimizer   16 bits, device               widened
//   fp32       parameters  the master, host              copied to the device
//   16 bits    parameters  16 bits, host                 copied and widened
//
// Where the strategy holds the master (Demands::holds_master) there is the copy of 16 bits alone,
// which others write: of all parameters, or of a layer's, which its gate brings.
class ComputeParameters {
 public:
  // Elements that are rounded and sent to a device together.
  static constexpr std::int64_t kPart = 1 << 16;

  // The model is borrowed.
  // The copy's class: kParameters, or kGathered where layers come and go.
  static Result<ComputeParameters> create(const Model<float>& model, Precision precision,
                                          Offload offload, const MemoryPlaces& places,
                                          MemoryClass what = MemoryClass::kParameters);
  ComputeParameters() = default;

  // The copy of elements [first, first + part.size()) becomes these; where they lie on a device,
  // when its stream has come there.
  Status store(std::span<const float> part, std::size_t first);
  // What passes read, with the gate where there is one.
  std::span<const float> values(std::span<const float> master) const;
  // null: values() hold everything all the time. The master outlives it, unchanged. `before` has
  // its say first when a layer opens, and last when it closes; null: there is none.
  std::unique_ptr<LayerGate> gate(std::span<const float> master, LayerGate* before = nullptr) const;
  // The copy in 16 bits.
  const PagedTensors& stored() const { return stored_; }

 private:
  class Gate;
  Status store_away(std::span<const float> part, std::size_t first);
  Status fill(std::span<float> to, std::span<const float> master, std::size_t first) const;
  bool narrow() const { return precision_ != Precision::kF32; }
  bool there() const { return places_.device.device().space == MemorySpace::kCuda; }
  // Where stored() lies.
  Stream stored_stream() const {
    return offload_ == Offload::kParameters ? places_.host.stream() : places_.device.stream();
  }

  const Model<float>* model_ = nullptr;
  Precision precision_ = Precision::kF32;
  Offload offload_ = Offload::kNone;
  MemoryPlaces places_;
  PagedTensors stored_;  // 16 bits
  Buffer copy_;          // fp32
  Buffer on_its_way_;    // 16 bits: a part or a tensor of them, between the host and a device
  PagedTensors paged_;   // fp32, of layers that compute
};

}  // namespace gradwire
