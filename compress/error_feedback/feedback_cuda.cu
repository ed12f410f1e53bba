// ef14 and ef21 on a device.
#include <utility>

#include "compress/error_feedback/device_decorator.h"
#include "compress/error_feedback/feedback_device.h"
#include "compress/error_feedback/feedback_kernels.h"

namespace gradwire::cuda {
namespace {

class Ef14OnDevice final : public DeviceDecorator {
 public:
  Ef14OnDevice(DecoratedCoder coder, float scale, Buffer error, Buffer p, Buffer own)
      : DeviceDecorator(std::move(coder)),
        scale_(scale),
        fused_(inner().takes_feedback()),
        error_(std::move(error)),
        p_(std::move(p)),
        own_(std::move(own)) {}

  std::vector<NamedTensor> state() override { return with_inner({{"error", view(error_)}}); }

 private:
  Status correct(ConstTensorView grad, std::uint64_t step, const Stream& stream) override {
    if (fused_) {
      return inner().begin_with_feedback(
          grad, {view(error_), view(p_), static_cast<double>(scale_)}, step, stream);
    }
    GW_TRY(
        pass("gradient + residual", AddResidual{floats(grad), floats(error_), floats(p_)}, stream));
    return inner().begin(view(p_), step, stream);
  }

  Status conclude(TensorView mean, TensorView own, const Stream& stream) override {
    if (fused_) {
      GW_TRY(inner().finish(mean, own, stream));
    } else {
      GW_TRY(inner().finish(mean, view(own_), stream));
      GW_TRY(pass("the new residual", TakeOwn{floats(own_), scale_, floats(p_)}, stream));
      if (!own.empty()) {
        GW_TRY(copy_bytes(view(own_).bytes(), device(), own.bytes(), device(), stream));
      }
    }
    std::swap(p_, error_);
    if (scale_ == 1) return {};
    if (!own.empty()) GW_TRY(scale(own, static_cast<double>(scale_), stream));
    return mean.empty() ? Status() : scale(mean, static_cast<double>(scale_), stream);
  }

  float scale_;
  bool fused_;  // the inner coder adds the residual and computes the next one
  Buffer error_;
  Buffer p_;    // lent to the inner coder from begin() to finish(); then the new residual
  Buffer own_;  // unless fused
};

class Ef21OnDevice final : public DeviceDecorator {
 public:
  struct Rooms {
    Buffer h;
    Buffer known;   // the mean over ranks
    Buffer v;       // with eta < 1
    Buffer next_v;  // of the step in work
    Buffer d;       // lent to the inner coder from begin() to finish()
    Buffer own;     // c, then the new h
  };

  Ef21OnDevice(DecoratedCoder coder, const Ef21Options& options, Rooms rooms)
      : DeviceDecorator(std::move(coder)),
        scale_(static_cast<float>(options.scale)),
        eta_(static_cast<float>(options.eta)),
        at_(std::move(rooms)) {}

  std::vector<NamedTensor> state() override {
    std::vector<NamedTensor> all{entry("h", at_.h), entry("mean", at_.known)};
    if (averages()) all.push_back(entry("v", at_.v));
    return with_inner(std::move(all));
  }

 private:
  bool averages() const { return eta_ != 1; }
  NamedTensor entry(std::string_view name, const Buffer& data) const {
    return {std::string(kEf21State) + std::string(name), view(data)};
  }

  Status correct(ConstTensorView grad, std::uint64_t step, const Stream& stream) override {
    const TakeKnown kernel{floats(grad), averages() ? floats(at_.v) : nullptr,      floats(at_.h),
                           eta_,         averages() ? floats(at_.next_v) : nullptr, floats(at_.d)};
    GW_TRY(pass("gradient - h", kernel, stream));
    return inner().begin(view(at_.d), step, stream);
  }

  Status conclude(TensorView mean, TensorView own, const Stream& stream) override {
    GW_TRY(inner().finish(mean, view(at_.own), stream));
    if (mean.empty()) return {};
    const AddToKnown kernel{floats(at_.h), floats(at_.known), scale_, floats(at_.own),
                            elements<float>(mean).data()};
    GW_TRY(pass("the new h, or the new mean", kernel, stream));
    GW_TRY(copy_bytes(mean.bytes(), device(), view(at_.known).bytes(), device(), stream));
    std::swap(at_.h, at_.own);
    std::swap(at_.v, at_.next_v);
    if (own.empty()) return {};
    return copy_bytes(view(at_.h).bytes(), device(), own.bytes(), device(), stream);
  }

  float scale_;
  float eta_;
  Rooms at_;
};

}  // namespace

Result<std::unique_ptr<Coder>> make_ef14(std::unique_ptr<Coder> inner, const Shape& shape,
                                         const Compressor::Placement& where, double scale) {
  const bool fused = inner->takes_feedback();
  GW_ASSIGN(DecoratedCoder coder, DecoratedCoder::open(std::move(inner), shape, where));
  GW_ASSIGN(Buffer error, coder.room());
  GW_ASSIGN(Buffer p, coder.room());
  Buffer own;
  if (!fused) {
    GW_ASSIGN(own, coder.room());
  }
  return std::unique_ptr<Coder>(std::make_unique<Ef14OnDevice>(
      std::move(coder), static_cast<float>(scale), std::move(error), std::move(p), std::move(own)));
}

Result<std::unique_ptr<Coder>> make_ef21(std::unique_ptr<Coder> inner, const Shape& shape,
                                         const Compressor::Placement& where,
                                         const Ef21Options& options) {
  GW_ASSIGN(DecoratedCoder coder, DecoratedCoder::open(std::move(inner), shape, where));
  Ef21OnDevice::Rooms rooms;
  for (Buffer* const room : {&rooms.h, &rooms.known, &rooms.d, &rooms.own}) {
    GW_ASSIGN(*room, coder.room());
  }
  if (options.eta != 1) {
    GW_ASSIGN(rooms.v, coder.room());
    GW_ASSIGN(rooms.next_v, coder.room());
  }
  return std::unique_ptr<Coder>(
      std::make_unique<Ef21OnDevice>(std::move(coder), options, std::move(rooms)));
}

}  // namespace gradwire::cuda
