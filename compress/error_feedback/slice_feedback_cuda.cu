// SliceFeedback on a device.
#include <optional>
#include <utility>

#include "compress/cuda/device_contract.h"
#include "compress/error_feedback/ef21.h"
#include "compress/error_feedback/feedback_device.h"
#include "compress/error_feedback/finite_pass.h"
#include "compress/error_feedback/resting_on_device.h"
#include "device/ops.h"

namespace gradwire::cuda {
namespace {

// What all kinds have: where tensors lie, and passes over them.
class SlicesOnDevice : public SliceFeedback {
 public:
  SlicesOnDevice(const Shape& shape, const Stream& stream, FinitePass passes)
      : shape_(shape), stream_(stream), passes_(std::move(passes)) {}

 protected:
  const Stream& stream() const { return stream_; }
  std::size_t bytes() const { return static_cast<std::size_t>(shape_.elems()) * sizeof(float); }
  Result<Buffer> room() const { return Buffer::allocate(bytes(), stream_.device); }
  TensorView view(std::byte* data) const { return {data, shape_, DType::kF32, stream_.device}; }
  TensorView view(const Buffer& data) const { return view(data.bytes().data()); }
  static float* floats(const Buffer& data) { return reinterpret_cast<float*>(data.bytes().data()); }
  static const float* floats(ConstTensorView tensor) {
    return reinterpret_cast<const float*>(tensor.data());
  }
  // each(i) of `count` elements, which are those from `first` on.
  template <class Each>
  Status pass(const char* what, const Each& each, std::int64_t first, std::int64_t count) {
    return passes_.run(what, each, first, count, stream_);
  }

 private:
  Shape shape_;
  Stream stream_;
  FinitePass passes_;
};

// ef14 with the whole residual. In separate passes the residual becomes p and then the new
// residual; in one pass the new one is written beside the old, and they change places.
class ResidualOfSlices final : public SlicesOnDevice {
 public:
  ResidualOfSlices(const Shape& shape, const Stream& stream, FinitePass passes, Buffer error)
      : SlicesOnDevice(shape, stream, std::move(passes)), error_(std::move(error)) {}

  Result<TensorView> correct(ConstTensorView input, std::uint64_t) override {
    float* const error = floats(error_);
    GW_TRY(pass("gradient + residual", AddResidual{floats(input), error, error}, 0, input.elems()));
    return view(error_);
  }
  Status settle(std::int64_t first, ConstTensorView sent) override {
    const TakeOwn kernel{floats(sent), 1, floats(error_) + first};
    return pass("the new residual", kernel, first, sent.elems());
  }

  bool packs(const WireFormat& format) const override { return format.takes_feedback(); }
  Result<std::size_t> pack(WireFormat& format, const PackedPiece& piece, ByteSpan wire) override {
    const std::int64_t count = piece.input.elems();
    GW_ASSIGN(const TensorView next, beside());
    const Feedback feedback{view(error_).slice(piece.first, count), next.slice(piece.first, count),
                            piece.scale};
    return format.pack_with_feedback(piece.input, feedback, piece.slice, wire, stream());
  }
  Result<TensorView> correct_part(ConstTensorView input, std::int64_t first) override {
    GW_ASSIGN(const TensorView whole, beside());
    const AddResidual kernel{floats(input), floats(error_) + first, floats(next_) + first};
    GW_TRY(pass("gradient + residual", kernel, first, input.elems()));
    return whole;
  }

  Status settle_exactly(std::int64_t first, std::int64_t count) override {
    const TensorView residual = view(in_one_pass_ ? next_ : error_);
    return fill_neutral(ReduceOp::kSum, residual.slice(first, count), stream());
  }
  Status finish() override {
    if (std::exchange(in_one_pass_, false)) std::swap(error_, next_);
    return {};
  }
  std::vector<NamedTensor> state() override {
    return {{std::string(kResidualState), view(error_)}};
  }

 private:
  Result<TensorView> beside() {
    if (next_.bytes().empty()) {
      GW_ASSIGN(next_, room());
    }
    in_one_pass_ = true;
    return view(next_);
  }

  Buffer error_;
  Buffer next_;  // empty until the first pack()
  bool in_one_pass_ = false;
};

// A residual that rests in few bytes, forgets, or both. p lives from correct() to finish().
class RestingOfSlices final : public SlicesOnDevice {
 public:
  RestingOfSlices(const FeedbackOptions& options, const Shape& shape,
                  const Compressor::Placement& where, int stage, const Stream& stream,
                  FinitePass passes, ResidualOnDevice residual)
      : SlicesOnDevice(shape, stream, std::move(passes)),
        beta_(options.kind == FeedbackKind::kLoco ? static_cast<float>(options.beta) : 0),
        reset_(options.kind == FeedbackKind::kLoco ? options.reset : 0),
        where_(where),
        stage_(stage),
        residual_(std::move(residual)) {}

  Result<TensorView> correct(ConstTensorView input, std::uint64_t step) override {
    step_ = step;
    const OnDevice here(stream().device);
    GW_TRY(here.status());
    GW_ASSIGN(Scratch room, Scratch::allocate(bytes(), stream()));
    p_.emplace(std::move(room));
    const AddResting kernel{floats(input), residual_.at_step(step_, reset_), p_->as<float>()};
    GW_TRY(pass("gradient + residual", kernel, 0, input.elems()));
    return view(p_->as<std::byte>());
  }
  Status settle(std::int64_t first, ConstTensorView sent) override {
    const SettleRest kernel{floats(sent), residual_.at_step(step_, reset_), first, beta_,
                            p_->as<float>()};
    return pass("the new residual", kernel, first, sent.elems());
  }
  Status settle_exactly(std::int64_t first, std::int64_t count) override {
    const TensorView p = view(p_->as<std::byte>());
    return fill_neutral(ReduceOp::kSum, p.slice(first, count), stream());
  }
  Status finish() override {
    GW_TRY(residual_.store(p_->as<float>(), where_, stage_, step_, stream()));
    p_.reset();
    return {};
  }
  std::vector<NamedTensor> state() override { return residual_.state(); }

 private:
  float beta_;
  std::int64_t reset_;
  Compressor::Placement where_;
  int stage_;
  ResidualOnDevice residual_;
  std::uint64_t step_ = 0;
  std::optional<Scratch> p_;
};

// ef21 and ef21_sgdm.
class DifferencesOfSlices final : public SlicesOnDevice {
 public:
  struct Rooms {
    Buffer h;
    Buffer v;  // with eta < 1
    Buffer d;  // what is packed
  };

  DifferencesOfSlices(float eta, const Shape& shape, const Stream& stream, FinitePass passes,
                      Rooms rooms)
      : SlicesOnDevice(shape, stream, std::move(passes)), eta_(eta), at_(std::move(rooms)) {}

  Result<TensorView> correct(ConstTensorView input, std::uint64_t) override {
    float* const v = eta_ != 1 ? floats(at_.v) : nullptr;
    const TakeKnown kernel{floats(input), v, floats(at_.h), eta_, v, floats(at_.d)};
    GW_TRY(pass("gradient - h", kernel, 0, input.elems()));
    return view(at_.d);
  }
  Status settle(std::int64_t first, ConstTensorView sent) override {
    float* const h = floats(at_.h) + first;
    return pass("the new h", AddResidual{floats(sent), h, h}, first, sent.elems());
  }
  Status settle_exactly(std::int64_t first, std::int64_t count) override {
    return reduce(ReduceOp::kSum, view(at_.d).slice(first, count), view(at_.h).slice(first, count),
                  stream());
  }
  Status finish() override { return {}; }
  std::vector<NamedTensor> state() override {
    std::vector<NamedTensor> all{{std::string(kEf21State) + "h", view(at_.h)}};
    if (eta_ != 1) all.push_back({std::string(kEf21State) + "v", view(at_.v)});
    return all;
  }

 private:
  float eta_;
  Rooms at_;
};

Result<std::unique_ptr<SliceFeedback>> make_differences(double eta, const Shape& shape,
                                                        const Stream& stream, FinitePass passes) {
  const std::size_t bytes = static_cast<std::size_t>(shape.elems()) * sizeof(float);
  DifferencesOfSlices::Rooms rooms;
  GW_ASSIGN(rooms.h, Buffer::allocate(bytes, stream.device));
  GW_ASSIGN(rooms.d, Buffer::allocate(bytes, stream.device));
  if (eta != 1) {
    GW_ASSIGN(rooms.v, Buffer::allocate(bytes, stream.device));
  }
  return std::unique_ptr<SliceFeedback>(std::make_unique<DifferencesOfSlices>(
      static_cast<float>(eta), shape, stream, std::move(passes), std::move(rooms)));
}

}  // namespace

Result<std::unique_ptr<SliceFeedback>> make_slice_feedback(const FeedbackOptions& options,
                                                           const Shape& shape,
                                                           const Compressor::Placement& where,
                                                           int stage, const Stream& stream) {
  GW_TRY(check_device_placement("error feedback", where));
  const Stream there{where.device, stream.native};
  GW_ASSIGN(FinitePass passes, FinitePass::open(shape, where.device));
  if (options.kind == FeedbackKind::kEf21) {
    return make_differences(1, shape, there, std::move(passes));
  }
  if (options.kind == FeedbackKind::kEf21Sgdm) {
    return make_differences(options.eta, shape, there, std::move(passes));
  }
  if (options.kind == FeedbackKind::kEf14 && options.storage == ResidualStorage::kFull) {
    const std::size_t bytes = static_cast<std::size_t>(shape.elems()) * sizeof(float);
    GW_ASSIGN(Buffer error, Buffer::allocate(bytes, where.device));
    return std::unique_ptr<SliceFeedback>(
        std::make_unique<ResidualOfSlices>(shape, there, std::move(passes), std::move(error)));
  }
  GW_ASSIGN(ResidualOnDevice residual,
            ResidualOnDevice::open(shape, options.storage, where.device));
  return std::unique_ptr<SliceFeedback>(std::make_unique<RestingOfSlices>(
      options, shape, where, stage, there, std::move(passes), std::move(residual)));
}

}  // namespace gradwire::cuda
