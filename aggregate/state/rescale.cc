#include "aggregate/state/rescale.h"

#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include "base/elements.h"
#include "base/small_floats.h"
#include "base/text.h"

namespace gradwire {
namespace {

bool is_residual(std::string_view tail) {
  return tail == ".error" || tail == ".error.scale" || tail == ".error2" || tail == ".error2.scale";
}

// Is the entry, named by what follows its parameter's name, one that `kind` is about?
bool follows(const Parameter& parameter, std::string_view tail, ScaleKind kind) {
  constexpr std::string_view kOuter = ".outer";
  if (tail.starts_with(kOuter)) tail.remove_prefix(kOuter.size());
  if (kind == ScaleKind::kLearningRate) {
    return parameter.feedback.rescale_lr && (is_residual(tail) || tail == ".coder.residual");
  }
  return is_residual(tail) || tail.starts_with(".ef21.") || tail.starts_with(".coder.residual");
}

bool concerns(std::string_view name, std::span<const Parameter> parameters, ScaleKind kind) {
  for (const Parameter& parameter : parameters) {
    if (!name.starts_with(parameter.name)) continue;
    if (follows(parameter, name.substr(parameter.name.size()), kind)) return true;
  }
  return false;
}

struct Bf16 {
  std::uint16_t bits;
};
double wide(float x) { return static_cast<double>(x); }
double wide(double x) { return x; }
double wide(Bf16 x) { return static_cast<double>(float_from_bf16(x.bits)); }
void narrow(double value, float& out) { out = static_cast<float>(value); }
void narrow(double value, double& out) { out = value; }
void narrow(double value, Bf16& out) { out.bits = bf16_from_float(static_cast<float>(value)); }

// Checks, and multiplies only when `write`.
template <typename T>
Status multiply(const NamedTensor& entry, double factor, bool write) {
  const std::span<T> values(reinterpret_cast<T*>(entry.tensor.data()),
                            static_cast<std::size_t>(entry.tensor.elems()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    T next;
    narrow(wide(values[i]) * factor, next);
    if (!std::isfinite(wide(next))) {
      return {Code::kInvalidArgument, format("state '%s': element %zu, %g, times %g is not finite "
                                             "(expected finite numbers); nothing was rescaled",
                                             entry.name.c_str(), i, wide(values[i]), factor)};
    }
    if (write) values[i] = next;
  }
  return {};
}

Status multiply_any(const NamedTensor& entry, double factor, bool write) {
  switch (entry.tensor.dtype()) {
    case DType::kF32: return multiply<float>(entry, factor, write);
    case DType::kF64: return multiply<double>(entry, factor, write);
    case DType::kBF16: return multiply<Bf16>(entry, factor, write);
    default: return {};  // codes, whose scales are an entry of their own
  }
}

}  // namespace

std::vector<NamedTensor> concerned(std::vector<NamedTensor> state,
                                   std::span<const Parameter> parameters, ScaleKind kind) {
  std::erase_if(state,
                [&](const NamedTensor& entry) { return !concerns(entry.name, parameters, kind); });
  return state;
}

Status rescale_state(std::span<const NamedTensor> state, std::span<const Parameter> parameters,
                     ScaleKind kind, double factor) {
  if (factor == 1) return {};
  for (const bool write : {false, true}) {
    for (const NamedTensor& entry : state) {
      if (!concerns(entry.name, parameters, kind)) continue;
      GW_TRY(multiply_any(entry, factor, write));
    }
  }
  return {};
}

}  // namespace gradwire
