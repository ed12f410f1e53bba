// loco on a device, and ef14 whose residual rests in fewer bytes.
#include <optional>
#include <utility>

#include "compress/error_feedback/device_decorator.h"
#include "compress/error_feedback/feedback_device.h"
#include "compress/error_feedback/residual_kernels.h"
#include "compress/error_feedback/stored_residual.h"

namespace gradwire::cuda {
namespace {

static_assert(StoreResidual::kBlock == kResidualBlock);

class ResidualOnDevice {
 public:
  static Result<ResidualOnDevice> open(const Shape& shape, ResidualStorage storage, Device device) {
    const auto count = static_cast<std::size_t>(shape.elems());
    ResidualOnDevice residual;
    residual.shape_ = shape;
    residual.storage_ = storage;
    const std::size_t each = storage == ResidualStorage::kFull   ? 4
                             : storage == ResidualStorage::kBf16 ? 2
                                                                 : 1;
    GW_ASSIGN(residual.elements_, Buffer::allocate(count * each, device));
    const std::size_t blocks = (count + kResidualBlock - 1) / kResidualBlock;
    GW_ASSIGN(residual.scales_, Buffer::allocate(blocks * sizeof(float), device));
    return Result<ResidualOnDevice>(std::move(residual));
  }

  RestingResidual at_rest() const {
    std::byte* const data = elements_.bytes().data();
    switch (storage_) {
      case ResidualStorage::kFull: return {.full = reinterpret_cast<float*>(data)};
      case ResidualStorage::kBf16: return {.halves = reinterpret_cast<std::uint16_t*>(data)};
      case ResidualStorage::kInt8: break;
    }
    return {.codes = reinterpret_cast<std::int8_t*>(data),
            .scales = reinterpret_cast<float*>(scales_.bytes().data())};
  }

  std::vector<NamedTensor> state() const {
    const DType type = storage_ == ResidualStorage::kFull   ? DType::kF32
                       : storage_ == ResidualStorage::kBf16 ? DType::kBF16
                                                            : DType::kI8;
    std::vector<NamedTensor> all{{std::string(kResidualState),
                                  {elements_.bytes().data(), shape_, type, elements_.device()}}};
    if (storage_ != ResidualStorage::kInt8) return all;
    const auto blocks = static_cast<std::int64_t>((shape_.elems() + 255) / 256);
    all.push_back({std::string(kResidualScales),
                   {scales_.bytes().data(), Shape::vector(blocks), DType::kF32, scales_.device()}});
    return all;
  }

 private:
  Shape shape_;
  ResidualStorage storage_ = ResidualStorage::kFull;
  Buffer elements_;
  Buffer scales_;  // of kInt8
};

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
  RestingResidual residual() const {
    const auto every = static_cast<std::uint64_t>(options_.reset);
    if (every > 0 && step_ > 0 && step_ % every == 0) return {};
    return residual_.at_rest();
  }

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
    GW_TRY(store(stream));
    p_.reset();
    own_.reset();
    return by == 1 || mean.empty() ? Status() : scale(mean, options_.scale, stream);
  }

  Status store(const Stream& stream) {
    const RandomStream draws(where_.seed, RandomUse::kResidualRounding, where_.tensor, where_.rank,
                             0, step_);
    const OnDevice here(device());
    GW_TRY(here.status());
    const StoreResidual kernel{p_->as<float>(), elems(), draws, residual_.at_rest()};
    return launch("error feedback: store", kernel, blocks_for(elems(), 8 * StoreResidual::kBlock),
                  stream);
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
