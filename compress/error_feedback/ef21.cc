#include "compress/error_feedback/ef21.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "compress/error_feedback/decorator.h"
#include "compress/error_feedback/feedback_device.h"

namespace gradwire {
namespace {

template <typename T>
class Ef21 final : public FeedbackDecorator {
 public:
  Ef21(std::unique_ptr<Coder> inner, const Shape& shape, const Ef21Options& options)
      : FeedbackDecorator(std::move(inner), shape, DTypeOf<T>::kValue),
        scale_(static_cast<T>(options.scale)),
        eta_(static_cast<T>(options.eta)),
        h_(static_cast<std::size_t>(shape.elems())),
        mean_(h_.size()),
        v_(averages() ? h_.size() : 0),
        next_v_(v_.size()),
        d_(h_.size()),
        own_(h_.size()) {}

  std::vector<NamedTensor> state() override {
    std::vector<NamedTensor> all{entry("h", h_), entry("mean", mean_)};
    if (averages()) all.push_back(entry("v", v_));
    for (NamedTensor& inner_entry : inner().state()) all.push_back(std::move(inner_entry));
    return all;
  }

 private:
  bool averages() const { return eta_ != T{1}; }

  Status correct(ConstTensorView grad, std::uint64_t, ConstTensorView& corrected) override {
    auto target = grad.empty() ? std::span<const T>() : elements<T>(grad);
    if (averages()) {
      for (std::size_t i = 0; i < v_.size(); ++i) {
        next_v_[i] = (1 - eta_) * v_[i] + eta_ * target[i];
      }
      target = next_v_;
    }
    for (std::size_t i = 0; i < d_.size(); ++i) d_[i] = target[i] - h_[i];
    if (!all_finite<T>(d_)) return not_finite<T>("gradient - h", d_);
    corrected = view_of_shape<T>(d_);
    return {};
  }

  Status conclude(TensorView mean, TensorView own, const Stream& stream) override {
    GW_TRY(inner().finish(mean, view_of_shape<T>(own_), stream));
    if (mean.empty()) return {};
    const std::span<T> result = elements<T>(mean);
    for (std::size_t i = 0; i < h_.size(); ++i) {
      own_[i] = h_[i] + scale_ * own_[i];
      result[i] = mean_[i] + scale_ * result[i];
    }
    if (!all_finite<T>(own_)) return not_finite<T>("the new h", own_);
    if (!all_finite<T>(result)) return not_finite<T>("the new mean", result);
    std::copy(own_.begin(), own_.end(), h_.begin());
    std::copy(result.begin(), result.end(), mean_.begin());
    std::copy(next_v_.begin(), next_v_.end(), v_.begin());
    if (!own.empty()) std::copy(h_.begin(), h_.end(), elements<T>(own).begin());
    return {};
  }

  NamedTensor entry(std::string_view name, std::vector<T>& data) const {
    return {std::string(kEf21State) + std::string(name), view_of_shape<T>(data)};
  }

  T scale_;
  T eta_;
  std::vector<T> h_;
  std::vector<T> mean_;
  std::vector<T> v_;
  std::vector<T> next_v_;  // of the step in work
  std::vector<T> d_;       // lent to the inner coder from begin() to finish()
  std::vector<T> own_;     // c, then the new h
};

}  // namespace

Result<std::unique_ptr<Coder>> make_ef21(std::unique_ptr<Coder> inner, const Shape& shape,
                                         const Compressor::Placement& where,
                                         const Ef21Options& options) {
  GW_TRY(check_decorator(inner, where, options.scale));
  if (!(options.eta > 0 && options.eta <= 1)) {
    return Status(Code::kInvalidArgument,
                  format("error feedback: eta is %g (expected above 0, at most 1)", options.eta));
  }
  if constexpr (kHaveCuda) {
    if (where.device.space == MemorySpace::kCuda) {
      return cuda::make_ef21(std::move(inner), shape, where, options);
    }
  }
  if (where.dtype == DType::kF64) {
    return std::unique_ptr<Coder>(std::make_unique<Ef21<double>>(std::move(inner), shape, options));
  }
  return std::unique_ptr<Coder>(std::make_unique<Ef21<float>>(std::move(inner), shape, options));
}

}  // namespace gradwire
