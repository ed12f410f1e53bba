#include "trainer/step/parameter_store.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
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
  const bool apart = narrow && demands.holds_master;
  if (!apart) {
    const MemoryClass what = demands.layer_by_layer ? MemoryClass::kGathered
                             : narrow || away       ? MemoryClass::kMaster
                                                    : MemoryClass::kParameters;
    GW_ASSIGN(made->params_,
              PagedTensors::create(model.parameters(), away ? places.host : places.device, what));
    made->params_.take_all();
  }
  if (apart || !demands.layer_by_layer) {
    GW_ASSIGN(made->compute_,
              ComputeParameters::create(
                  model, options.precision, offload, options.places,
                  demands.layer_by_layer ? MemoryClass::kGathered : MemoryClass::kParameters));
  }
  return made;
}

Result<std::uint64_t> ParameterStore::hash() {
  GW_TRY(refresh());
  const PagedTensors& read = compute_.stored().size() > 0 ? compute_.stored() : params_;
  GW_ASSIGN(const HostCopy all, HostCopy::of(read.whole()));
  return hash_bytes(all.bytes());
}

Status ParameterStore::draw(std::uint64_t seed) {
  seed_ = seed;
  given_.clear();
  return write_first();
}

Status ParameterStore::start_from(std::vector<float> values) {
  GW_CHECK(static_cast<std::int64_t>(values.size()) == parameter_elems(model_.parameters()));
  given_ = std::move(values);
  return write_first();
}

void ParameterStore::first_values(int index, std::span<float> values) const {
  const ParameterInfo& info = model_.parameters()[static_cast<std::size_t>(index)];
  if (given_.empty()) {
    init_parameter(info, seed_, values);
  } else {
    std::ranges::copy(
        std::span(given_).subspan(static_cast<std::size_t>(info.offset), values.size()),
        values.begin());
  }
}

// Made on the host, wherever they are to lie; a tensor at a time.
Status ParameterStore::write_first() {
  master_changed();
  const bool here = params_.size() > 0 && params_.device().space != MemorySpace::kCuda;
  for (int index = 0; index < paged().size(); ++index) {
    std::vector<float> made;
    if (!here) made.resize(static_cast<std::size_t>(paged().view(index).elems()));
    const std::span<float> values = here ? params_.tensor(index) : std::span<float>(made);
    first_values(index, values);
    if (!here) GW_TRY(write(index, values));
  }
  return {};
}

Status ParameterStore::write(int index, std::span<float> values) {
  const PagedTensors& to = paged();
  if (to.dtype() == DType::kF32) return write_from_host(std::as_bytes(values), to.view(index));
  return write_from_host(std::as_bytes(store_in_place(precision_, values)), to.view(index));
}

// Where the strategy has the master it writes what passes read.
Status ParameterStore::refresh() {
  if (params_.size() == 0) {
    values_ = compute_.values({});
    return {};
  }
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
  gate.own = compute_.gate(master(), keepers);
  gate.use = gate.own ? gate.own.get() : keepers;
  return gate;
}

}  // namespace gradwire
