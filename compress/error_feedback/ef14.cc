#include "compress/error_feedback/ef14.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "compress/contract.h"
#include "compress/error_feedback/decorator.h"
#include "compress/error_feedback/feedback_device.h"
#include "compress/error_feedback/owing_coder.h"
#include "compress/finite.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

// False for NaN too. Written without a library call so that loops over it vectorise.
template <typename T>
bool is_finite(T x) {
  return std::abs(x) <= std::numeric_limits<T>::max();
}

// out = a + b. True when every element is finite.
template <typename T>
bool add(std::span<const T> a, std::span<const T> b, std::span<T> out) {
  LargestBits<T> largest;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = a[i] + b[i];
    largest.see(out[i]);
  }
  return largest.finite();
}

// p -= own * scale. True when every element of p is finite.
template <typename T>
bool subtract_scaled(std::span<const T> own, T scale, std::span<T> p) {
  LargestBits<T> largest;
  for (std::size_t i = 0; i < p.size(); ++i) {
    p[i] -= own[i] * scale;
    largest.see(p[i]);
  }
  return largest.finite();
}

template <typename T>
class Ef14 final : public Coder {
 public:
  Ef14(std::unique_ptr<Coder> inner, const Shape& shape, double scale)
      : inner_(std::move(inner)),
        shape_(shape),
        scale_(static_cast<T>(scale)),
        fused_(inner_->takes_feedback()),
        error_(static_cast<std::size_t>(shape.elems())),
        p_(error_.size()),
        own_(fused_ ? 0 : error_.size()),
        owing_(dynamic_cast<OwingCoder*>(inner_.get())) {
    if (owing_ != nullptr) owing_->allow_owing();
  }

  Status begin(ConstTensorView grad, std::uint64_t step, const Stream& stream) override {
    begun_ = false;
    GW_TRY(check_tensor("error feedback: grad", grad, shape_.elems(), DTypeOf<T>::kValue));
    const auto g = grad.empty() ? std::span<const T>() : elements<T>(grad);
    if (fused_) {
      grad_ = g;
      GW_TRY(inner_->begin_with_feedback(
          grad, {view(error_), view(p_), static_cast<double>(scale_)}, step, stream));
    } else {
      if (!add<T>(g, error_, p_)) return not_finite(g);
      GW_TRY(inner_->begin(view(p_), step, stream));
    }
    begun_ = true;
    return {};
  }

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    GW_TRY(check_begun("encode"));
    Result<std::size_t> count = inner_->encode(round, payload, stream);
    if (count.has_value() || !fused_) return count;
    begun_ = false;
    settle();
    return add<T>(grad_, error_, p_) ? std::move(count) : not_finite(grad_);
  }

  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream& stream) override {
    GW_TRY(check_begun("absorb"));
    return inner_->absorb(round, payloads, stream);
  }

  Status finish(TensorView mean, TensorView own, const Stream& stream) override {
    GW_TRY(check_begun("finish"));
    if (!own.empty()) {
      GW_TRY(check_tensor("error feedback: own", own, shape_.elems(), DTypeOf<T>::kValue));
    }
    if (fused_) {
      begun_ = false;
      const Status status = inner_->finish(mean, own, stream);
      if (!status.ok()) return all_finite<T>(p_) ? status : overflowed();
      if (!own.empty()) multiply(own);
    } else {
      GW_TRY(inner_->finish(mean, view(own_), stream));
      begun_ = false;
      if (!subtract_scaled<T>(own_, scale_, p_)) return overflowed();
      if (!own.empty()) {
        std::copy(own_.begin(), own_.end(), elements<T>(own).begin());
        multiply(own);
      }
    }
    std::swap(p_, error_);
    if (!mean.empty()) multiply(mean);
    return {};
  }

  std::vector<NamedTensor> state() override {
    settle();
    std::vector<NamedTensor> all{{"error", view(error_)}};
    for (NamedTensor& inner : inner_->state()) all.push_back(std::move(inner));
    return all;
  }

 private:
  TensorView view(std::vector<T>& data) const {
    return {reinterpret_cast<std::byte*>(data.data()), shape_, DTypeOf<T>::kValue};
  }

  // Makes the residual whole.
  void settle() {
    if (owing_ != nullptr && owing_->owes()) owing_->settle(view(error_));
  }

  void multiply(TensorView values) const {
    if (scale_ == T{1}) return;
    for (T& x : elements<T>(values)) x *= scale_;
  }

  Status check_begun(const char* call) const {
    if (begun_) return {};
    return {Code::kInvalidArgument, format("error feedback: %s() without a begun step", call)};
  }

  Status not_finite(std::span<const T> g) const {
    std::size_t i = 0;
    while (is_finite(p_[i])) ++i;
    return {Code::kInvalidArgument,
            format("error feedback: element %zu of %s is not finite (gradient %g, residual %g; "
                   "expected finite numbers); the residual is kept as it was",
                   i, to_string(shape_).c_str(), static_cast<double>(g[i]),
                   static_cast<double>(error_[i]))};
  }

  Status overflowed() const {
    std::size_t i = 0;
    while (is_finite(p_[i])) ++i;
    return {Code::kInvalidArgument,
            format("error feedback: the new residual of element %zu of %s is %g (expected finite "
                   "numbers: the method's range overflowed); the residual is kept as it was",
                   i, to_string(shape_).c_str(), static_cast<double>(p_[i]))};
  }

  std::unique_ptr<Coder> inner_;
  Shape shape_;
  T scale_;
  bool fused_;  // inner_ adds the residual and computes the next one
  std::span<const T> grad_;
  std::vector<T> error_;
  std::vector<T> p_;    // lent to inner_ from begin() to finish(); then the new residual
  std::vector<T> own_;  // unless fused: inner_'s own must not be the memory that it was given
  OwingCoder* owing_;   // inner_, or null
  bool begun_ = false;
};

}  // namespace

Result<std::unique_ptr<Coder>> make_ef14(std::unique_ptr<Coder> inner, const Shape& shape,
                                         const Compressor::Placement& where, double scale) {
  GW_TRY(check_decorator(inner, where, scale));
  if constexpr (kHaveCuda) {
    if (where.device.space == MemorySpace::kCuda) {
      return cuda::make_ef14(std::move(inner), shape, where, scale);
    }
  }
  if (where.dtype == DType::kF64) {
    return std::unique_ptr<Coder>(std::make_unique<Ef14<double>>(std::move(inner), shape, scale));
  }
  return std::unique_ptr<Coder>(std::make_unique<Ef14<float>>(std::move(inner), shape, scale));
}

}  // namespace gradwire
