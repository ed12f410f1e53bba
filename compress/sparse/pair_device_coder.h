// compress/sparse/pair_coder.h on a device: all but choosing and writing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compress/contract.h"
#include "compress/cuda/device_contract.h"
#include "compress/sparse/pairs_on_device.h"

namespace gradwire::cuda {

// One round, kF32. A method's class adds encode(), which calls its own check_round(). Not
// thread-safe.
class PairDeviceCoder : public Coder {
 public:
  Status begin(ConstTensorView grad, std::uint64_t step, const Stream&) override {
    GW_TRY(check("grad", grad));
    grad_ = grad;
    step_ = step;
    feedback_.reset();
    payloads_.forget();
    return {};
  }
  bool takes_feedback() const override { return payloads_.exact(); }
  Status begin_with_feedback(ConstTensorView grad, const Feedback& feedback, std::uint64_t step,
                             const Stream& stream) override {
    GW_TRY(begin(grad, step, stream));
    GW_TRY(check("residual", feedback.residual));
    GW_TRY(check("next", feedback.next));
    feedback_ = feedback;
    return {};
  }
  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream& stream) override {
    GW_TRY(check_round(method_, round, 1));
    return payloads_.absorb(payloads, step_, stream);
  }
  Status finish(TensorView mean, TensorView own, const Stream& stream) override {
    return payloads_.finish(mean, own, stream);
  }
  std::vector<NamedTensor> state() override { return {}; }

 protected:
  // `method` names errors.
  PairDeviceCoder(std::string method, std::int64_t elems, Device device, PairsOnDevice payloads)
      : method_(std::move(method)),
        elems_(elems),
        device_(device),
        payloads_(std::move(payloads)) {}

  // What begin() was given.
  Source source() const {
    Source source{.grad = reinterpret_cast<const float*>(grad_.data()), .count = elems_};
    if (!feedback_.has_value()) return source;
    source.residual = reinterpret_cast<const float*>(feedback_->residual.data());
    source.next = reinterpret_cast<float*>(feedback_->next.data());
    source.own_scale = static_cast<float>(feedback_->scale);
    return source;
  }

  std::string method_;
  std::int64_t elems_;
  Device device_;
  PairsOnDevice payloads_;
  std::uint64_t step_ = 0;

 private:
  Status check(const char* what, ConstTensorView tensor) const {
    return check_tensor_on(device_, method_ + ": " + what, tensor, elems_, DType::kF32);
  }

  ConstTensorView grad_ = {};
  std::optional<Feedback> feedback_ = {};
};

}  // namespace gradwire::cuda
