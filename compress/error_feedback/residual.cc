#include "compress/error_feedback/residual.h"

#include <cmath>
#include <limits>
#include <span>

#include "base/elements.h"
#include "base/text.h"
#include "compress/finite.h"

namespace gradwire {
namespace {

// False for NaN too.
template <typename T>
bool is_finite(T x) {
  return std::abs(x) <= std::numeric_limits<T>::max();
}

Status not_finite(std::size_t i, const char* one, double a, const char* other, double b) {
  return {
      Code::kInvalidArgument,
      format("error feedback: element %zu is not finite (%s %g, %s %g; expected finite numbers)", i,
             one, a, other, b)};
}

template <typename T>
Status add_typed(std::span<const T> grad, std::span<T> error) {
  LargestBits<T> largest;
  for (std::size_t i = 0; i < error.size(); ++i) largest.see(error[i] + grad[i]);
  if (largest.finite()) {
    for (std::size_t i = 0; i < error.size(); ++i) error[i] += grad[i];
    return {};
  }
  std::size_t i = 0;
  while (is_finite(error[i] + grad[i])) ++i;
  return not_finite(i, "gradient", static_cast<double>(grad[i]), "residual",
                    static_cast<double>(error[i]));
}

template <typename T>
Status put_typed(std::span<const T> grad, std::span<const T> error, std::span<T> out) {
  LargestBits<T> largest;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = error[i] + grad[i];
    largest.see(out[i]);
  }
  if (largest.finite()) return {};
  std::size_t i = 0;
  while (is_finite(out[i])) ++i;
  return not_finite(i, "gradient", static_cast<double>(grad[i]), "residual",
                    static_cast<double>(error[i]));
}

template <typename T>
Status subtract_typed(std::span<const T> sent, std::span<T> values) {
  LargestBits<T> largest;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] -= sent[i];
    largest.see(values[i]);
  }
  if (largest.finite()) return {};
  std::size_t i = 0;
  while (is_finite(values[i])) ++i;
  return not_finite(i, "new residual", static_cast<double>(values[i]), "what was sent",
                    static_cast<double>(sent[i]));
}

}  // namespace

Status add_gradient(ConstTensorView grad, TensorView error) {
  GW_CHECK(grad.elems() == error.elems() && grad.dtype() == error.dtype());
  if (grad.empty()) return {};
  return grad.dtype() == DType::kF64 ? add_typed(elements<double>(grad), elements<double>(error))
                                     : add_typed(elements<float>(grad), elements<float>(error));
}

Status put_sum(ConstTensorView grad, ConstTensorView error, TensorView out) {
  GW_CHECK(grad.elems() == out.elems() && grad.dtype() == out.dtype());
  GW_CHECK(error.elems() == out.elems() && error.dtype() == out.dtype());
  if (grad.empty()) return {};
  return out.dtype() == DType::kF64
             ? put_typed(elements<double>(grad), elements<double>(error), elements<double>(out))
             : put_typed(elements<float>(grad), elements<float>(error), elements<float>(out));
}

Status subtract(ConstTensorView sent, TensorView values) {
  GW_CHECK(sent.elems() == values.elems() && sent.dtype() == values.dtype());
  if (sent.empty()) return {};
  return sent.dtype() == DType::kF64
             ? subtract_typed(elements<double>(sent), elements<double>(values))
             : subtract_typed(elements<float>(sent), elements<float>(values));
}

}  // namespace gradwire
