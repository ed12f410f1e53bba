#include "trainer/compute_parameters.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "trainer/cuda/make_kernels.h"

namespace gradwire {
namespace {

constexpr std::array<std::string_view, 3> kOffloads{"none", "optimizer", "parameters"};

std::span<float> floats(const Buffer& buffer) {
  const ByteSpan bytes = buffer.bytes();
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

}  // namespace

std::string_view to_string(Offload offload) { return kOffloads[static_cast<std::size_t>(offload)]; }

Result<Offload> parse_offload(std::string_view text) {
  for (std::size_t i = 0; i < kOffloads.size(); ++i) {
    if (text == kOffloads[i]) return static_cast<Offload>(i);
  }
  return Status(Code::kInvalidArgument, format("offload '%.*s'; none, optimizer or parameters "
                                               "wanted",
                                               static_cast<int>(text.size()), text.data()));
}

// Of layers' turns: their part of the copy becomes fp32 on the device.
class ComputeParameters::Gate final : public LayerGate {
 public:
  Gate(const ComputeParameters& of, std::span<const float> master) : of_(of), master_(master) {}

  Status open(std::size_t layer, Way) override {
    const auto [first, end] = of_.model_->parameters_read_by(layer);
    for (int index = first; index < end; ++index) {
      of_.paged_.take(index);
      GW_TRY(fill(of_.paged_.tensor(index)));
    }
    return {};
  }
  Status close(std::size_t layer, Way) override {
    const auto [first, end] = of_.model_->parameters_read_by(layer);
    for (int index = first; index < end; ++index) of_.paged_.drop(index);
    return {};
  }

 private:
  Status fill(std::span<float> to) const {
    const auto first = static_cast<std::size_t>(to.data() - of_.paged_.all().data());
    if (of_.narrow()) {
      GW_TRY(load(of_.precision_, of_.stored().subspan(first, to.size()), to,
                  of_.places_.device.stream()));
    } else {
      std::ranges::copy(master_.subspan(first, to.size()), to.begin());
    }
    if (of_.offload_ != Offload::kParameters) return {};
    const std::size_t width = of_.narrow() ? sizeof(std::uint16_t) : sizeof(float);
    of_.places_.link->bytes_in += static_cast<std::int64_t>(to.size() * width);
    return {};
  }

  const ComputeParameters& of_;
  std::span<const float> master_;
};

Result<ComputeParameters> ComputeParameters::create(const Model<float>& model, Precision precision,
                                                    Offload offload, const MemoryPlaces& places) {
  ComputeParameters made;
  made.model_ = &model;
  made.precision_ = precision;
  made.offload_ = offload;
  made.places_ = places;
  const auto elems = static_cast<std::size_t>(parameter_elems(model.parameters()));
  const bool away = offload == Offload::kParameters;
  if (made.narrow()) {
    const MemoryArena& where = away ? places.host : places.device;
    GW_ASSIGN(made.stored_,
              where.allocate(MemoryClass::kParameters, elems * sizeof(std::uint16_t)));
  } else if (offload == Offload::kOptimizer) {
    GW_ASSIGN(made.copy_, places.device.allocate(MemoryClass::kParameters, elems * sizeof(float)));
  }
  if (made.narrow() || away) {
    GW_ASSIGN(made.paged_,
              PagedTensors::create(model.parameters(), places.device, MemoryClass::kGathered));
  }
  return made;
}

std::span<std::uint16_t> ComputeParameters::stored() const {
  const ByteSpan bytes = stored_.bytes();
  return {reinterpret_cast<std::uint16_t*>(bytes.data()), bytes.size() / sizeof(std::uint16_t)};
}

Status ComputeParameters::store(std::span<const float> part, std::size_t first) {
  std::size_t width = 0;
  if (narrow()) {
    GW_TRY(gradwire::store(precision_, part, stored().subspan(first, part.size()),
                           places_.device.stream()));
    width = sizeof(std::uint16_t);
  } else if (offload_ == Offload::kOptimizer) {
    std::ranges::copy(part, floats(copy_).subspan(first, part.size()).begin());
    width = sizeof(float);
  }
  if (offload_ != Offload::kOptimizer) return {};
  places_.link->bytes_in += static_cast<std::int64_t>(part.size() * width);
  return {};
}

std::span<const float> ComputeParameters::values(std::span<const float> master) const {
  if (paged_.size() > 0) return paged_.all();
  return offload_ == Offload::kOptimizer ? floats(copy_) : master;
}

std::unique_ptr<LayerGate> ComputeParameters::gate(std::span<const float> master) const {
  if (paged_.size() == 0) return nullptr;
  return std::make_unique<Gate>(*this, master);
}

Result<std::unique_ptr<RoundedGate>> RoundedGate::create(LayerGate& inner,
                                                         const Model<float>& model,
                                                         Precision precision,
                                                         std::span<float> parameters,
                                                         const Stream& stream) {
  std::unique_ptr<RoundedGate> made(new RoundedGate(inner, model, precision, parameters));
  GW_ASSIGN(made->there_, make_stored_kernels(precision, stream));
  return made;
}

Status RoundedGate::open(std::size_t layer, Way way) {
  GW_TRY(inner_.open(layer, way));
  const auto [first, end] = model_.parameters_read_by(layer);
  for (int index = first; index < end; ++index) {
    const ParameterInfo& info = model_.parameters()[static_cast<std::size_t>(index)];
    const std::span<float> own = parameters_.subspan(static_cast<std::size_t>(info.offset),
                                                     static_cast<std::size_t>(info.shape.elems()));
    if (there_ != nullptr) {
      GW_TRY(there_->round(own));
    } else {
      round_to(precision_, own);
    }
  }
  return {};
}

}  // namespace gradwire
