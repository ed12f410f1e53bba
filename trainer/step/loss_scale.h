// What the loss is multiplied by, so that small gradients survive fp16.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "gradwire/status.h"

namespace gradwire {

// Dynamic: `growth` times larger after `growth_every` steps without overflow in a row, `backoff`
// times as large after an overflow that `hysteresis` does not cover. Powers of two change no bit of
// a gradient that neither overflows nor vanishes.
struct LossScaleOptions {
  double initial = 1;  // 1 and not dynamic: gradients are not looked at
  bool dynamic = false;
  double growth = 2;
  std::int64_t growth_every = 2000;
  double backoff = 0.5;
  std::int64_t hysteresis = 2;  // overflows that it takes; given anew with every growth
  double least = 1;

  bool active() const { return dynamic || initial != 1; }

  // "none", "dynamic" (from 65536), or a number > 0.
  static Result<LossScaleOptions> parse(std::string_view text);
};

// Source: Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.2, with the
// hysteresis of Megatron-LM.
class LossScaler {
 public:
  // kInvalidArgument names the option.
  static Result<LossScaler> create(const LossScaleOptions& options);
  LossScaler() = default;

  double scale() const { return scale_; }
  // Once per step: whether a gradient of any rank was not finite.
  void update(bool overflow);

  // Scale, clean steps in a row, hysteresis left: for checkpoints.
  static constexpr std::size_t kStateSize = 3;
  void save(std::span<double> state) const;
  // kInvalidArgument for what no scaler can have come to.
  Status load(std::span<const double> state);

 private:
  LossScaleOptions options_;
  double scale_ = 1;
  std::int64_t clean_ = 0;
  std::int64_t hysteresis_ = 1;
};

}  // namespace gradwire
