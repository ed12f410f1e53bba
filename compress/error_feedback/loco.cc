#include "compress/error_feedback/loco.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "compress/contract.h"
#include "compress/error_feedback/decorator.h"
#include "compress/error_feedback/feedback_device.h"
#include "compress/error_feedback/stored_residual.h"

namespace gradwire {
namespace {

// Frees the memory, which clear() would keep.
template <typename T>
void release(std::vector<T>& values) {
  std::vector<T>().swap(values);
}

template <typename T>
class Loco final : public FeedbackDecorator {
 public:
  Loco(std::unique_ptr<Coder> inner, const Shape& shape, const Compressor::Placement& where,
       const LocoOptions& options)
      : FeedbackDecorator(std::move(inner), shape, DTypeOf<T>::kValue),
        options_(options),
        residual_(shape, options.storage, where, 0) {}

  std::vector<NamedTensor> state() override {
    std::vector<NamedTensor> all = residual_.state();
    for (NamedTensor& entry : inner().state()) all.push_back(std::move(entry));
    return all;
  }

 private:
  Status correct(ConstTensorView grad, std::uint64_t step, ConstTensorView& corrected) override {
    step_ = step;
    p_.resize(residual_.size());
    own_.resize(residual_.size());
    load_residual(p_);
    const auto g = grad.empty() ? std::span<const T>() : elements<T>(grad);
    for (std::size_t i = 0; i < p_.size(); ++i) p_[i] = g[i] + p_[i];
    if (!all_finite<T>(p_)) return not_finite<T>("gradient + residual", p_);
    corrected = view(p_);
    return {};
  }

  Status conclude(TensorView mean, TensorView own, const Stream& stream) override {
    GW_TRY(inner().finish(mean, view(own_), stream));
    const T scale = static_cast<T>(options_.scale);
    for (std::size_t i = 0; i < p_.size(); ++i) {
      own_[i] *= scale;
      p_[i] -= own_[i];
    }
    if (!own.empty()) std::copy(own_.begin(), own_.end(), elements<T>(own).begin());
    if (options_.beta > 0) blend();
    if (!all_finite<T>(p_)) return not_finite<T>("the new residual", p_);
    GW_TRY(residual_.store(p_, step_));
    if (scale != T{1} && !mean.empty()) {
      for (T& x : elements<T>(mean)) x *= scale;
    }
    release(p_);
    release(own_);
    return {};
  }

  // p = beta e + (1 - beta) p. own_ is free by now.
  void blend() {
    load_residual(own_);
    const T beta = static_cast<T>(options_.beta);
    for (std::size_t i = 0; i < p_.size(); ++i) p_[i] = beta * own_[i] + (1 - beta) * p_[i];
  }

  void load_residual(std::span<T> out) const {
    const auto every = static_cast<std::uint64_t>(options_.reset);
    if (every > 0 && step_ > 0 && step_ % every == 0) {
      std::fill(out.begin(), out.end(), T{0});
    } else {
      residual_.load(0, out);
    }
  }

  TensorView view(std::vector<T>& data) const { return view_of_shape<T>(data); }

  LocoOptions options_;
  StoredResidual<T> residual_;
  std::uint64_t step_ = 0;
  std::vector<T> p_;    // lent to the inner coder from begin() to finish(); then the new residual
  std::vector<T> own_;  // as ef14's
};

}  // namespace

Result<std::unique_ptr<Coder>> make_loco(std::unique_ptr<Coder> inner, const Shape& shape,
                                         const Compressor::Placement& where,
                                         const LocoOptions& options) {
  GW_TRY(check_decorator(inner, where, options.scale));
  if (!(options.beta >= 0 && options.beta < 1) || options.reset < 0) {
    return Status(Code::kInvalidArgument,
                  format("error feedback: beta is %g and reset %lld (expected 0 <= beta < 1 and 0 "
                         "or more steps)",
                         options.beta, static_cast<long long>(options.reset)));
  }
  if constexpr (kHaveCuda) {
    if (where.device.space == MemorySpace::kCuda) {
      return cuda::make_loco(std::move(inner), shape, where, options);
    }
  }
  if (where.dtype == DType::kF64) {
    return std::unique_ptr<Coder>(
        std::make_unique<Loco<double>>(std::move(inner), shape, where, options));
  }
  return std::unique_ptr<Coder>(
      std::make_unique<Loco<float>>(std::move(inner), shape, where, options));
}

}  // namespace gradwire
