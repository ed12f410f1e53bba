#include "compress/sparse/shared_choice.h"

#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/elements.h"
#include "base/text.h"
#include "compress/contract.h"
#include "compress/identity/identity.h"

namespace gradwire {
namespace {

Shape vector_of(std::size_t k) { return Shape::vector(static_cast<std::int64_t>(k)); }

}  // namespace

RoundKind ChosenValues::round_kind(DType dtype) const {
  if (exact()) return {.exchange = Exchange::kAllReduceSum, .payload = dtype};
  return {};
}

std::size_t ChosenValues::bytes(std::size_t k, DType dtype) const {
  if (exact()) return k * size_of(dtype);
  const auto format = second_->open_slices(vector_of(k), {.dtype = dtype});
  GW_CHECK(format.has_value());  // Registry::make() lets elementwise second stages pass alone
  return format.value()->bytes(static_cast<std::int64_t>(k), 0);
}

Result<std::unique_ptr<Coder>> ChosenValues::open(std::size_t k,
                                                  const Compressor::Placement& where) const {
  const Shape shape = vector_of(k);
  if (exact()) {
    GW_ASSIGN(const auto none, identity_method().factory({"none", {}}));
    return none->open(shape, where);
  }
  GW_ASSIGN(auto format, second_->open_slices(shape, where));
  return make_slice_coder(std::move(format), shape, where);
}

template <typename T>
Status SharedChoice<T>::begin(ConstTensorView grad, std::uint64_t step) {
  GW_TRY(check_tensor(method_ + ": grad", grad, shape_.elems(), where_.dtype));
  grad_ = grad;
  step_ = step;
  feedback_.reset();
  return {};
}

template <typename T>
Status SharedChoice<T>::begin_with_feedback(ConstTensorView grad, const Feedback& feedback,
                                            std::uint64_t step) {
  GW_TRY(check_feedback(method_, grad, feedback, where_.dtype));
  GW_TRY(begin(grad, step));
  feedback_ = feedback;
  return {};
}

template <typename T>
Corrected<T> SharedChoice<T>::corrected() const {
  const auto grad = grad_.empty() ? std::span<const T>() : elements<T>(grad_);
  if (!feedback_ || grad.empty()) return Corrected<T>(grad);
  return Corrected<T>(grad, elements<T>(feedback_->residual).data());
}

template <typename T>
Status SharedChoice<T>::not_finite() const {
  const Corrected<T> p = corrected();
  std::size_t i = 0;
  while (i + 1 < p.size && std::isfinite(p[i])) ++i;
  return {Code::kInvalidArgument,
          format("%s: element %zu of %s is %g (expected finite numbers: most are not sent, and "
                 "would be forgotten)",
                 method_.c_str(), i, to_string(shape_).c_str(), static_cast<double>(p[i]))};
}

template <typename T>
Result<std::size_t> SharedChoice<T>::encode(ByteSpan payload, const Stream& stream) {
  const bool feeds = feedback_.has_value() && shape_.elems() > 0;
  const cpu::Rest<T> rest{feeds ? elements<T>(feedback_->next).data() : nullptr,
                          feeds ? static_cast<T>(feedback_->scale) : T{1}};
  if (!cpu::pick<T>(corrected(), index_, factor_, picked_, rest)) return not_finite();
  GW_TRY(inner_->begin(view_of(std::span<T>(picked_)), step_, stream));
  return inner_->encode(0, payload, stream);
}

template <typename T>
Status SharedChoice<T>::finish(TensorView mean, TensorView own, const Stream& stream) {
  GW_TRY(check_tensor(method_ + ": mean", mean, shape_.elems(), where_.dtype));
  if (!own.empty()) GW_TRY(check_tensor(method_ + ": own", own, shape_.elems(), where_.dtype));
  const TensorView own_values = own.empty() ? TensorView() : view_of(std::span<T>(own_));
  GW_TRY(inner_->finish(view_of(std::span<T>(mean_)), own_values, stream));
  if (mean.empty()) return {};
  if (!own.empty()) cpu::spread<T>(index_, own_, elements<T>(own));
  cpu::spread<T>(index_, mean_, elements<T>(mean));
  return {};
}

template class SharedChoice<float>;
template class SharedChoice<double>;

}  // namespace gradwire
