#include "adapters/trainer/divergence.h"

#include <cmath>
#include <string>

#include "base/elements.h"
#include "base/text.h"
#include "compress/finite.h"
#include "device/host_copy.h"

namespace gradwire {
namespace {

bool is_model(std::string_view name) {
  return name.starts_with("parameters/") ||
         (name.starts_with("rank-") && name.ends_with("/mode/w"));
}

// A NaN's sign says nothing.
std::string text_of(double value) { return std::isnan(value) ? "nan" : format("%g", value); }

Status not_finite(const std::string& name, std::int64_t index, double value) {
  return {Code::kInvalidArgument,
          format("%s: element %lld is %s (expected finite numbers): the training has diverged",
                 name.c_str(), static_cast<long long>(index), text_of(value).c_str())};
}

Status check_floats(const std::string& name, std::int64_t begin, std::span<const float> values) {
  if (all_finite(values)) return {};
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return not_finite(name, begin + static_cast<std::int64_t>(i), static_cast<double>(values[i]));
  }
  return {};
}

}  // namespace

Status check_loss(std::string_view what, std::int64_t step, double value) {
  if (std::isfinite(value)) return {};
  return {
      Code::kInvalidArgument,
      format("the %s of step %lld is %s (expected a finite number): the training has diverged",
             std::string(what).c_str(), static_cast<long long>(step + 1), text_of(value).c_str())};
}

Status check_model(std::span<const TensorPart> parts) {
  for (const TensorPart& part : parts) {
    if (!is_model(part.tensor) || part.values.dtype() != DType::kF32 || part.values.elems() == 0) {
      continue;
    }
    GW_ASSIGN(const HostCopy copy, HostCopy::of(part.values));
    const ConstTensorView here(copy.bytes().data(), part.values.shape(), DType::kF32);
    GW_TRY(check_floats(part.tensor, part.begin, elements<float>(here)));
  }
  return {};
}

Status check_model(std::span<const float> parameters) {
  return check_floats("parameters", 0, parameters);
}

}  // namespace gradwire
