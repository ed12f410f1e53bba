#include "trainer/optimizers/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/text.h"

namespace gradwire {
namespace {

// The text behind `prefix`, if `part` begins with it.
std::optional<std::string_view> after(std::string_view part, std::string_view prefix) {
  if (!part.starts_with(prefix)) return std::nullopt;
  return part.substr(prefix.size());
}

bool add_change(std::string_view text, LrSchedule& schedule) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return false;
  const std::optional<double> fraction = to_double(text.substr(0, colon));
  const std::optional<double> factor = to_double(text.substr(colon + 1));
  if (!fraction || !factor || *fraction < 0 || *fraction > 1 || *factor < 0) return false;
  schedule.changes.push_back({*fraction, *factor});
  return true;
}

bool add_part(std::string_view part, LrSchedule& schedule) {
  if (const auto rest = after(part, "step:")) return add_change(*rest, schedule);
  if (const auto rest = after(part, "warmup:")) {
    const std::optional<std::int64_t> steps = to_int(*rest);
    if (!steps || *steps < 1 || schedule.warmup > 0) return false;
    schedule.warmup = *steps;
    return true;
  }
  if (const auto rest = after(part, "cosine:")) {
    const std::optional<double> fraction = to_double(*rest);
    if (!fraction || *fraction < 0 || *fraction > 1 || schedule.cosine) return false;
    schedule.cosine = *fraction;
    return true;
  }
  return false;
}

}  // namespace

Result<LrSchedule> LrSchedule::parse(std::string_view text) {
  LrSchedule schedule;
  if (text == "constant") return schedule;
  bool good = true;
  for (std::string_view rest = text; good;) {
    const std::size_t comma = rest.find(',');
    good = add_part(rest.substr(0, comma), schedule);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (good) return schedule;
  return Status(Code::kInvalidArgument,
                format("learning rate schedule '%.*s' (expected constant, or warmup:STEPS, "
                       "cosine:FRACTION and step:FRACTION:FACTOR between commas with STEPS >= 1, 0 "
                       "<= FRACTION <= 1 and FACTOR >= 0)",
                       static_cast<int>(text.size()), text.data()));
}

std::string LrSchedule::text() const {
  std::string all;
  const auto add = [&all](const std::string& part) { all += (all.empty() ? "" : ",") + part; };
  if (warmup > 0) add("warmup:" + std::to_string(warmup));
  if (cosine) add("cosine:" + shortest(*cosine));
  for (const Change& change : changes) {
    if (change.fraction >= 1 || change.factor == 1) continue;  // never heard
    add("step:" + shortest(change.fraction) + ":" + shortest(change.factor));
  }
  return all.empty() ? "constant" : all;
}

double LrSchedule::at(double lr, std::int64_t step, std::int64_t total) const {
  // A fraction such as 0.7 is not exact: a product that close to a whole step means that step.
  constexpr double kSlack = 1e-6;
  for (const Change& change : changes) {
    const double begin = change.fraction * static_cast<double>(total) - kSlack;
    if (change.fraction < 1 && static_cast<double>(step) >= begin) lr *= change.factor;
  }
  if (step < warmup) return lr * (static_cast<double>(step + 1) / static_cast<double>(warmup));
  if (!cosine) return lr;
  const auto length = static_cast<double>(std::max<std::int64_t>(total - warmup, 1));
  const double done = std::min(static_cast<double>(step - warmup) / length, 1.0);
  return lr * (*cosine + (1 - *cosine) * 0.5 * (1 + std::cos(std::numbers::pi * done)));
}

}  // namespace gradwire
