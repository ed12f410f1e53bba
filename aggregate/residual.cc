#include "aggregate/residual.h"

#include <cmath>
#include <limits>
#include <span>

#include "base/elements.h"
#include "base/text.h"

namespace gradwire {
namespace {

// False for NaN too. Written without a library call so that loops over it vectorise.
template <typename T>
bool is_finite(T x) {
  return std::abs(x) <= std::numeric_limits<T>::max();
}

Status not_finite(std::size_t i, const char* one, double a, const char* other, double b) {
  return {Code::kInvalidArgument, format("error feedback: element %zu is not finite (%s %g, %s %g; "
                                         "finite numbers wanted)",
                                         i, one, a, other, b)};
}

template <typename T>
Status add_typed(std::span<const T> grad, std::span<T> error) {
  bool finite = true;
  for (std::size_t i = 0; i < error.size(); ++i) finite &= is_finite(error[i] + grad[i]);
  if (finite) {
    for (std::size_t i = 0; i < error.size(); ++i) error[i] += grad[i];
    return {};
  }
  std::size_t i = 0;
  while (is_finite(error[i] + grad[i])) ++i;
  return not_finite(i, "gradient", static_cast<double>(grad[i]), "residual",
                    static_cast<double>(error[i]));
}

template <typename T>
Status subtract_typed(std::span<const T> sent, std::span<T> values) {
  bool finite = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] -= sent[i];
    finite &= is_finite(values[i]);
  }
  if (finite) return {};
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

Status subtract(ConstTensorView sent, TensorView values) {
  GW_CHECK(sent.elems() == values.elems() && sent.dtype() == values.dtype());
  if (sent.empty()) return {};
  return sent.dtype() == DType::kF64
             ? subtract_typed(elements<double>(sent), elements<double>(values))
             : subtract_typed(elements<float>(sent), elements<float>(values));
}

}  // namespace gradwire
