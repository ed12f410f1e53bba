#include "trainer/lr_schedule.h"

#include <optional>

#include "base/text.h"

namespace gradwire {

Result<LrSchedule> LrSchedule::parse(std::string_view text) {
  if (text == "constant") return LrSchedule{};
  constexpr std::string_view kPrefix = "step:";
  if (text.starts_with(kPrefix)) {
    const std::string_view rest = text.substr(kPrefix.size());
    const std::size_t colon = rest.find(':');
    if (colon != std::string_view::npos) {
      const std::optional<double> fraction = to_double(rest.substr(0, colon));
      const std::optional<double> factor = to_double(rest.substr(colon + 1));
      if (fraction && factor && *fraction >= 0 && *fraction <= 1 && *factor >= 0) {
        return LrSchedule{*fraction, *factor};
      }
    }
  }
  return Status(Code::kInvalidArgument,
                format("learning rate schedule '%.*s'; constant or step:FRACTION:FACTOR with 0 <= "
                       "FRACTION <= 1 and FACTOR >= 0 wanted",
                       static_cast<int>(text.size()), text.data()));
}

std::string LrSchedule::text() const {
  if (fraction >= 1 || factor == 1) return "constant";
  return "step:" + shortest(fraction) + ":" + shortest(factor);
}

double LrSchedule::at(double lr, std::int64_t step, std::int64_t total) const {
  // A fraction such as 0.7 is not exact: a product that close to a whole step means that step.
  constexpr double kSlack = 1e-6;
  const double change = fraction * static_cast<double>(total) - kSlack;
  return fraction < 1 && static_cast<double>(step) >= change ? lr * factor : lr;
}

}  // namespace gradwire
