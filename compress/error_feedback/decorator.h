// What decorators over a coder share: the order of calls and the words of their errors.
#pragma once

#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "compress/contract.h"
#include "compress/finite.h"
#include "device/cuda/have_cuda.h"
#include "gradwire/coder.h"
#include "gradwire/compressor.h"

namespace gradwire {

// kInvalidArgument unless there is a coder inside and 0 < scale <= 1; check_placement(), but of a
// CUDA device, whose decorators check their own.
inline Status check_decorator(const std::unique_ptr<Coder>& inner,
                              const Compressor::Placement& where, double scale) {
  if (where.device.space != MemorySpace::kCuda || !kHaveCuda) {
    GW_TRY(check_placement("error feedback", where));
  }
  if (inner == nullptr) return {Code::kInvalidArgument, "error feedback: no coder inside"};
  if (scale > 0 && scale <= 1) return {};
  return {Code::kInvalidArgument,
          format("error feedback: scale is %g (expected above 0, at most 1)", scale)};
}

// Begins the inner coder with what correct() makes of the gradient, hands payloads through, and
// leaves the end to conclude(). A step that ends before finish() has changed nothing.
class FeedbackDecorator : public Coder {
 public:
  FeedbackDecorator(std::unique_ptr<Coder> inner, const Shape& shape, DType dtype)
      : inner_(std::move(inner)), shape_(shape), dtype_(dtype) {}

  Status begin(ConstTensorView grad, std::uint64_t step, const Stream& stream) final {
    begun_ = false;
    GW_TRY(check_tensor("error feedback: grad", grad, shape_.elems(), dtype_));
    ConstTensorView corrected;
    GW_TRY(correct(grad, step, corrected));
    GW_TRY(inner_->begin(corrected, step, stream));
    begun_ = true;
    return {};
  }
  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) final {
    GW_TRY(check_begun("encode"));
    return inner_->encode(round, payload, stream);
  }
  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream& stream) final {
    GW_TRY(check_begun("absorb"));
    return inner_->absorb(round, payloads, stream);
  }
  Status finish(TensorView mean, TensorView own, const Stream& stream) final {
    GW_TRY(check_begun("finish"));
    GW_TRY(check_tensor("error feedback: mean", mean, shape_.elems(), dtype_));
    if (!own.empty()) {
      GW_TRY(check_tensor("error feedback: own", own, shape_.elems(), dtype_));
    }
    begun_ = false;
    return conclude(mean, own, stream);
  }

 protected:
  // Sets `corrected` to what the inner coder compresses: memory of the decorator's own.
  virtual Status correct(ConstTensorView grad, std::uint64_t step, ConstTensorView& corrected) = 0;
  // Finishes the inner coder and moves to the next state; `own` may be empty.
  virtual Status conclude(TensorView mean, TensorView own, const Stream& stream) = 0;

  Coder& inner() { return *inner_; }

  template <typename T>
  TensorView view_of_shape(std::vector<T>& data) const {
    return {reinterpret_cast<std::byte*>(data.data()), shape_, DTypeOf<T>::kValue};
  }

  // Names the first element that is not.
  template <typename T>
  Status not_finite(const char* what, std::span<const T> values) const {
    std::size_t i = 0;
    while (std::abs(values[i]) <= std::numeric_limits<T>::max()) ++i;
    return {Code::kInvalidArgument,
            format("error feedback: element %zu of %s, %s, is %g (expected finite numbers); the "
                   "state is kept as it was",
                   i, to_string(shape_).c_str(), what, static_cast<double>(values[i]))};
  }

 private:
  Status check_begun(const char* call) const {
    if (begun_) return {};
    return {Code::kInvalidArgument, format("error feedback: %s() without a begun step", call)};
  }

  std::unique_ptr<Coder> inner_;
  Shape shape_;
  DType dtype_;
  bool begun_ = false;
};

}  // namespace gradwire
