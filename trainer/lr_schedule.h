// The learning rate over a run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gradwire/status.h"

namespace gradwire {

// lr until `fraction` of all steps are done, lr * factor from then on. The default never changes.
struct LrSchedule {
  double fraction = 1;
  double factor = 1;

  // "constant" or "step:FRACTION:FACTOR", 0 <= FRACTION <= 1, FACTOR >= 0.
  static Result<LrSchedule> parse(std::string_view text);
  std::string text() const;

  // For step `step` (from 0) of `total`. The change happens at the first step that is not below
  // fraction * total: 0.6 of 2,340 is step 1,404.
  double at(double lr, std::int64_t step, std::int64_t total) const;
};

}  // namespace gradwire
