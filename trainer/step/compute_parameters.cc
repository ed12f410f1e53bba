#include "trainer/step/compute_parameters.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "device/host_copy.h"
#include "device/ops.h"
#include "trainer/cuda/make_kernels.h"

namespace gradwire {
namespace {

constexpr std::array<std::string_view, 3> kOffloads{"none", "optimizer", "parameters"};

std::span<float> floats(const Buffer& buffer) {
  const ByteSpan bytes = buffer.bytes();
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

std::span<std::uint16_t> halves(const Buffer& buffer) {
  const ByteSpan bytes = buffer.bytes();
  return {reinterpret_cast<std::uint16_t*>(bytes.data()), bytes.size() / sizeof(std::uint16_t)};
}

}  // namespace

std::string_view to_string(Offload offload) { return kOffloads[static_cast<std::size_t>(offload)]; }

Result<Offload> parse_offload(std::string_view text) {
  for (std::size_t i = 0; i < kOffloads.size(); ++i) {
    if (text == kOffloads[i]) return static_cast<Offload>(i);
  }
  return Status(Code::kInvalidArgument,
                format("offload '%.*s' (expected none, optimizer or parameters)",
                       static_cast<int>(text.size()), text.data()));
}

// Of layers' turns: their part of the copy becomes fp32 on the device.
class ComputeParameters::Gate final : public LayerGate {
 public:
  Gate(const ComputeParameters& of, std::span<const float> master, LayerGate* before)
      : of_(of), master_(master), before_(before) {}

  Status open(std::size_t layer, Way way) override {
    if (before_ != nullptr) GW_TRY(before_->open(layer, way));
    const auto [first, end] = of_.model_->parameters_read_by(layer);
    for (int index = first; index < end; ++index) {
      of_.paged_.take(index);
      const std::span<float> to = of_.paged_.tensor(index);
      const auto begin = static_cast<std::size_t>(to.data() - of_.paged_.all().data());
      GW_TRY(of_.fill(to, master_, begin));
    }
    return {};
  }
  Status close(std::size_t layer, Way way) override {
    const auto [first, end] = of_.model_->parameters_read_by(layer);
    for (int index = first; index < end; ++index) of_.paged_.drop(index);
    return before_ == nullptr ? Status() : before_->close(layer, way);
  }

 private:
  const ComputeParameters& of_;
  std::span<const float> master_;
  LayerGate* before_;
};

Result<ComputeParameters> ComputeParameters::create(const Model<float>& model, Precision precision,
                                                    Offload offload, const MemoryPlaces& places,
                                                    MemoryClass what) {
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
              PagedTensors::create(model.parameters(), where, what, dtype_of(precision)));
    made.stored_.take_all();
  } else if (offload == Offload::kOptimizer) {
    GW_ASSIGN(made.copy_, places.device.allocate(MemoryClass::kParameters, elems * sizeof(float)));
  }
  if (made.narrow() || away) {
    GW_ASSIGN(made.paged_,
              PagedTensors::create(model.parameters(), places.device, MemoryClass::kGathered));
  }
  if (made.narrow() && made.there() && offload != Offload::kNone) {
    // Of a part on its way there; or, there, of a layer's tensor that has come.
    const std::size_t room = away ? static_cast<std::size_t>(made.paged_.most_elems())
                                  : std::min(std::size_t{kPart}, elems);
    GW_ASSIGN(made.on_its_way_, (away ? places.device : places.host)
                                    .allocate(MemoryClass::kOther, room * sizeof(std::uint16_t)));
  }
  return made;
}

// A tensor of the copy, for a layer's turn: elements from `first` on.
Status ComputeParameters::fill(std::span<float> to, std::span<const float> master,
                               std::size_t first) const {
  const Stream stream = places_.device.stream();
  const bool away = offload_ == Offload::kParameters;
  if (!narrow()) {
    GW_TRY(copy_between(master.subspan(first, to.size()), places_.host, to, places_.device));
  } else if (!there() || !away) {
    GW_TRY(load(precision_, stored_.halves().subspan(first, to.size()), to, stream));
  } else {
    const std::span<std::uint16_t> come = halves(on_its_way_).first(to.size());
    GW_TRY(copy_bytes(std::as_bytes(stored_.halves().subspan(first, to.size())),
                      places_.host.device(), std::as_writable_bytes(come), stream.device, stream));
    GW_TRY(load(precision_, come, to, stream));
  }
  if (!away) return {};
  const std::size_t width = narrow() ? sizeof(std::uint16_t) : sizeof(float);
  places_.link->bytes_in += static_cast<std::int64_t>(to.size() * width);
  return {};
}

// Rounded here, stored there: a part at a time, each of which waits for the one before.
Status ComputeParameters::store_away(std::span<const float> part, std::size_t first) {
  const Stream stream = places_.device.stream();
  for (std::size_t at = 0; at < part.size(); at += kPart) {
    const std::size_t count = std::min(std::size_t{kPart}, part.size() - at);
    const std::span<std::uint16_t> going = halves(on_its_way_).first(count);
    gradwire::store(precision_, part.subspan(at, count), going);
    GW_TRY(copy_bytes(std::as_bytes(going), places_.host.device(),
                      std::as_writable_bytes(stored_.halves().subspan(first + at, count)),
                      stream.device, stream));
    GW_TRY(wait_for(stream));
  }
  return {};
}

Status ComputeParameters::store(std::span<const float> part, std::size_t first) {
  std::size_t width = 0;
  if (narrow()) {
    const bool goes = there() && offload_ == Offload::kOptimizer;
    GW_TRY(goes ? store_away(part, first)
                : gradwire::store(precision_, part, stored_.halves().subspan(first, part.size()),
                                  stored_stream()));
    width = sizeof(std::uint16_t);
  } else if (offload_ == Offload::kOptimizer) {
    GW_TRY(copy_between(part, places_.host, floats(copy_).subspan(first, part.size()),
                        places_.device));
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

std::unique_ptr<LayerGate> ComputeParameters::gate(std::span<const float> master,
                                                   LayerGate* before) const {
  if (paged_.size() == 0) return nullptr;
  return std::make_unique<Gate>(*this, master, before);
}

}  // namespace gradwire
