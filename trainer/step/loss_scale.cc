#include "trainer/step/loss_scale.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/check.h"
#include "base/text.h"

namespace gradwire {
namespace {

constexpr double kDynamicStart = 65536;

Status bad(const char* what, double seen, const char* wanted) {
  return Status(Code::kInvalidArgument,
                format("loss scale: %s %g (expected %s)", what, seen, wanted));
}

bool positive(double value) { return value > 0 && std::isfinite(value); }

}  // namespace

Result<LossScaleOptions> LossScaleOptions::parse(std::string_view text) {
  LossScaleOptions options;
  if (text == "none") return options;
  options.dynamic = text == "dynamic";
  if (options.dynamic) {
    options.initial = kDynamicStart;
    return options;
  }
  const std::optional<double> fixed = to_double(text);
  if (!fixed || !positive(*fixed)) {
    return Status(Code::kInvalidArgument,
                  format("loss scale '%.*s' (expected none, dynamic or a number > 0)",
                         static_cast<int>(text.size()), text.data()));
  }
  options.initial = *fixed;
  return options;
}

Result<LossScaler> LossScaler::create(const LossScaleOptions& options) {
  if (!positive(options.initial)) return bad("initial", options.initial, "a finite number > 0");
  if (!(options.growth >= 1) || !std::isfinite(options.growth)) {
    return bad("growth", options.growth, "a finite number >= 1");
  }
  if (!(options.backoff > 0 && options.backoff < 1)) {
    return bad("backoff", options.backoff, "0 < backoff < 1");
  }
  if (options.growth_every < 1) {
    return bad("growth_every", static_cast<double>(options.growth_every), "at least 1 step");
  }
  if (options.hysteresis < 1) {
    return bad("hysteresis", static_cast<double>(options.hysteresis), "at least 1 overflow");
  }
  if (!positive(options.least)) return bad("least", options.least, "a finite number > 0");
  LossScaler scaler;
  scaler.options_ = options;
  scaler.scale_ = options.initial;
  scaler.hysteresis_ = options.hysteresis;
  return scaler;
}

void LossScaler::update(bool overflow) {
  if (!options_.dynamic) return;
  if (overflow) {
    clean_ = 0;
    hysteresis_ = std::max<std::int64_t>(hysteresis_ - 1, 0);
    if (hysteresis_ == 0) scale_ = std::max(scale_ * options_.backoff, options_.least);
    return;
  }
  if (++clean_ < options_.growth_every) return;
  clean_ = 0;
  hysteresis_ = options_.hysteresis;
  if (std::isfinite(scale_ * options_.growth)) scale_ *= options_.growth;
}

void LossScaler::save(std::span<double> state) const {
  GW_CHECK(state.size() == kStateSize);
  state[0] = scale_;
  state[1] = static_cast<double>(clean_);
  state[2] = static_cast<double>(hysteresis_);
}

Status LossScaler::load(std::span<const double> state) {
  GW_CHECK(state.size() == kStateSize);
  if (!positive(state[0])) return bad("saved scale", state[0], "a finite number > 0");
  const auto count = [](double value) { return value >= 0 && value == std::floor(value); };
  if (!count(state[1]) || !(state[1] < static_cast<double>(options_.growth_every))) {
    return bad("saved clean steps", state[1], "a whole number below growth_every");
  }
  if (!count(state[2]) || !(state[2] <= static_cast<double>(options_.hysteresis))) {
    return bad("saved overflow countdown", state[2], "a whole number up to the options'");
  }
  scale_ = state[0];
  clean_ = static_cast<std::int64_t>(state[1]);
  hysteresis_ = static_cast<std::int64_t>(state[2]);
  return {};
}

}  // namespace gradwire
