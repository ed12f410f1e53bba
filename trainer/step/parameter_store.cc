#include "trainer/step/parameter_store.h"

#include <utility>
#include <vector>

#include "device/host_copy.h"

namespace gradwire {

Result<std::unique_ptr<ParameterStore>> ParameterStore::create(const Model<float>& model,
                                                               const TrainingOptions& options,
                                                               const Demands& demands) {
  std::unique_ptr<ParameterStore> made(new ParameterStore(model, options, demands));
  const MemoryPlaces& places = options.places;
  // An optimizer of the strategy's has its own master; what it offloads is its business.
  const Offload offload = demands.own_optimizer ? Offload::kNone : options.offload;
  const bool narrow = options.precision != Precision::kF32;
  const bool away = offload != Offload::kNone;
  const MemoryClass what = demands.layer_by_layer ? MemoryClass::kGathered
                           : narrow || away       ? MemoryClass::kMaster
                                                  : MemoryClass::kParameters;
  GW_ASSIGN(made->params_,
            PagedTensors::create(model.parameters(), away ? places.host : places.device, what));
  made->params_.take_all();
  if (!demands.layer_by_layer) {
    GW_ASSIGN(made->compute_,
              ComputeParameters::create(model, options.precision, offload, options.places));
  }
  return made;
}

TensorView ParameterStore::whole() const {
  const std::span<float> all = params_.all();
  return {reinterpret_cast<std::byte*>(all.data()),
          Shape::vector(static_cast<std::int64_t>(all.size())), DType::kF32, params_.device()};
}

// Drawn on the host, wherever they are to lie.
Status ParameterStore::draw(std::uint64_t seed) {
  master_changed();
  if (params_.device().space != MemorySpace::kCuda) {
    init_parameters<float>(model_.parameters(), seed, master());
    return {};
  }
  std::vector<float> drawn(master().size());
  init_parameters<float>(model_.parameters(), seed, drawn);
  return write_from_host(std::as_bytes(std::span(drawn)), whole());
}

Status ParameterStore::refresh() {
  if (layer_by_layer_) {
    values_ = master();
    return {};
  }
  if (!fresh_) GW_TRY(compute_.store(master(), 0));
  fresh_ = true;
  values_ = compute_.values(master());
  return {};
}

Status ParameterStore::store(std::span<const float> part, std::size_t first) {
  return compute_.store(part, first);
}

Result<ParameterStore::Gate> ParameterStore::gate(ParameterKeeper& keeper) const {
  Gate gate;
  LayerGate* const keepers = keeper.gate();
  if (!layer_by_layer_) {
    gate.own = compute_.gate(master());
  } else if (precision_ != Precision::kF32 && keepers != nullptr) {
    GW_ASSIGN(gate.own,
              RoundedGate::create(*keepers, model_, precision_, master(), places_.device.stream()));
  }
  gate.use = gate.own ? gate.own.get() : keepers;
  return gate;
}

}  // namespace gradwire
