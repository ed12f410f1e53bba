// How a step begins for coders whose tensors lie in one place, the host's memory or a device's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compress/cuda/device_contract.h"
#include "gradwire/coder.h"

namespace gradwire {

// A method's class adds the rounds and finish(), and takes_feedback(). Not thread-safe.
class PlacedCoder : public Coder {
 public:
  Status begin(ConstTensorView grad, std::uint64_t step, const Stream&) override {
    GW_TRY(check("grad", grad));
    grad_ = grad;
    step_ = step;
    feedback_.reset();
    forget();
    return {};
  }
  Status begin_with_feedback(ConstTensorView grad, const Feedback& feedback, std::uint64_t step,
                             const Stream& stream) override {
    GW_TRY(check("residual", feedback.residual));
    GW_TRY(check("next", feedback.next));
    GW_TRY(begin(grad, step, stream));
    feedback_ = feedback;
    return {};
  }
  std::vector<NamedTensor> state() override { return {}; }

 protected:
  // `method` names errors.
  PlacedCoder(std::string method, std::int64_t elems, Device device, DType dtype)
      : method_(std::move(method)), elems_(elems), device_(device), dtype_(dtype) {}

  // kInvalidArgument unless a tensor of the coder's elements in its place.
  Status check(const char* what, ConstTensorView tensor) const {
    return check_tensor_on(device_, method_ + ": " + what, tensor, elems_, dtype_);
  }

  std::string method_;
  std::int64_t elems_;
  Device device_;
  DType dtype_;
  ConstTensorView grad_ = {};
  std::uint64_t step_ = 0;
  std::optional<Feedback> feedback_ = {};  // of a step that was begun with it

 private:
  // What is left of the step before.
  virtual void forget() {}
};

}  // namespace gradwire
