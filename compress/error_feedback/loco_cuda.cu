// loco on a device, and ef14 whose residual rests in fewer bytes.
#include <optional>
#include <utility>

#include "compress/error_feedback/device_decorator.h"
#include "compress/error_feedback/feedback_device.h"
#include "compress/error_feedback/resting_on_device.h"

namespace gradwire::cuda {
namespace {

class LocoOnDevice final : public DeviceDecorator {
 public:
  LocoOnDevice(DecoratedCoder coder, const LocoOptions& options, const Compressor::Placement& where,
               ResidualOnDevice residual)
      : DeviceDecorator(std::move(coder)),
        options_(options),
        where_(where),
        residual_(std::move(residual)) {}

  std::vector<NamedTensor> state() override { return with_inner(residual_.state()); }

 private:
  // What the step starts from.
  RestingResidual residual() const { return residual_.at_step(step_, options_.reset); }

  Status correct(ConstTensorView grad, std::uint64_t step, const Stream& stream) override {
    step_ = step;
    const std::size_t bytes = static_cast<std::size_t>(elems()) * sizeof(float);
    const OnDevice here(device());
    GW_TRY(here.status());
    GW_ASSIGN(Scratch p, Scratch::allocate(bytes, stream));
    GW_ASSIGN(Scratch own, Scratch::allocate(bytes, stream));
    p_.emplace(std::move(p));
    own_.emplace(std::move(own));
    const AddResting kernel{floats(grad), residual(), p_->as<float>()};
    GW_TRY(pass("gradient + residual", kernel, stream));
    return inner().begin(view(p_->as<std::byte>()), step, stream);
  }

  Status conclude(TensorView mean, TensorView own, const Stream& stream) override {
    const TensorView sent = view(own_->as<std::byte>());
    GW_TRY(inner().finish(mean, sent, stream));
    const auto by = static_cast<float>(options_.scale);
    const BlendRest kernel{residual(), by, static_cast<float>(options_.beta), own_->as<float>(),
                           p_->as<float>()};
    GW_TRY(pass("the new residual", kernel, stream));
    if (!own.empty()) GW_TRY(copy_bytes(sent.bytes(), device(), own.bytes(), device(), stream));
    GW_TRY(residual_.store(p_->as<float>(), where_, 0, step_, stream));
    p_.reset();
    own_.reset();
    return by == 1 || mean.empty() ? Status() : scale(mean, options_.scale, stream);
  }

  LocoOptions options_;
  Compressor::Placement where_;
  ResidualOnDevice residual_;
  std::uint64_t step_ = 0;
  std::optional<Scratch> p_;    // lent to the inner coder from begin() to finish()
  std::optional<Scratch> own_;  // likewise
};

}  // namespace

Result<std::unique_ptr<Coder>> make_loco(std::unique_ptr<Coder> inner, const Shape& shape,
                                         const Compressor::Placement& where,
                                         const LocoOptions& options) {
  GW_ASSIGN(DecoratedCoder coder, DecoratedCoder::open(std::move(inner), shape, where));
  GW_ASSIGN(ResidualOnDevice residual,
            ResidualOnDevice::open(shape, options.storage, where.device));
  return std::unique_ptr<Coder>(
      std::make_unique<LocoOnDevice>(std::move(coder), options, where, std::move(residual)));
}

}  // namespace gradwire::cuda
