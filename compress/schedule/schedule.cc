#include "compress/schedule/schedule.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::int64_t kUsualStages = 32;

Status bad_schedule(std::string_view text, const std::string& why) {
  return {
      Code::kInvalidArgument,
      "'" + std::string(text) + "' is no schedule: " + why +
          " (expected VALUE/VALUE@STEP/... with ascending steps, linear(FROM..TO@STEPS/STAGES) or "
          "exp(FROM..TO@STEPS/STAGES))"};
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

Result<ScheduleStage> read_stage(std::string_view text, std::string_view part, bool first) {
  const std::size_t at = part.find('@');
  const std::string_view value = part.substr(0, at);
  if (!to_double(value)) return bad_schedule(text, "'" + std::string(value) + "' is no number");
  if (at == std::string_view::npos) {
    if (first) return ScheduleStage{0, std::string(value)};
    return bad_schedule(text, "'" + std::string(part) + "' has no step");
  }
  const std::string_view step = part.substr(at + 1);
  const auto number = to_int(step);
  if (!number || *number < 0) return bad_schedule(text, "'" + std::string(step) + "' is no step");
  return ScheduleStage{static_cast<std::uint64_t>(*number), std::string(value)};
}

Result<std::vector<ScheduleStage>> read_stages(std::string_view text) {
  std::vector<ScheduleStage> stages;
  for (const std::string_view part : split(text, '/')) {
    GW_ASSIGN(ScheduleStage stage, read_stage(text, part, stages.empty()));
    if (stages.empty() && stage.first != 0)
      return bad_schedule(text, "it does not begin at step 0");
    if (!stages.empty() && stage.first <= stages.back().first) {
      return bad_schedule(text, "step " + std::to_string(stage.first) +
                                    " does not come after step " +
                                    std::to_string(stages.back().first));
    }
    stages.push_back(std::move(stage));
  }
  return stages;
}

struct Ramp {
  bool exponential = false;
  std::string_view from;
  std::string_view to;
  std::int64_t steps = 0;
  std::int64_t stages = 0;
};

Result<Ramp> read_ramp(std::string_view text, std::string_view inside, bool exponential) {
  Ramp ramp;
  ramp.exponential = exponential;
  const std::size_t dots = inside.find("..");
  const std::size_t at = inside.find('@');
  if (dots == std::string_view::npos || at < dots) return bad_schedule(text, "FROM..TO is missing");
  ramp.from = inside.substr(0, dots);
  ramp.to = inside.substr(dots + 2, at - dots - 2);
  const auto ends = {to_double(ramp.from), to_double(ramp.to)};
  for (const auto& end : ends) {
    if (!end) return bad_schedule(text, "FROM and TO are no numbers");
    if (exponential && *end <= 0) return bad_schedule(text, "exp needs numbers above 0");
  }
  const std::vector<std::string_view> counts = split(inside.substr(at + 1), '/');
  const auto steps = to_int(counts[0]);
  if (!steps || *steps < 1)
    return bad_schedule(text, "'" + std::string(counts[0]) + "' are no steps");
  ramp.steps = *steps;
  ramp.stages = std::min(ramp.steps, kUsualStages);
  if (counts.size() == 1) return ramp;
  const auto stages = to_int(counts[1]);
  const std::int64_t most =
      std::min<std::int64_t>(ramp.steps, static_cast<std::int64_t>(kMostScheduleStages) - 1);
  if (counts.size() > 2 || !stages || *stages < 1 || *stages > most) {
    return bad_schedule(text, "1 to " + std::to_string(most) + " stages fit");
  }
  ramp.stages = *stages;
  return ramp;
}

std::vector<ScheduleStage> stages_of(const Ramp& ramp) {
  const double from = *to_double(ramp.from);
  const double to = *to_double(ramp.to);
  const bool integers = to_int(ramp.from).has_value() && to_int(ramp.to).has_value();
  std::vector<ScheduleStage> all;
  for (std::int64_t i = 0; i < ramp.stages; ++i) {
    const double part = static_cast<double>(i) / static_cast<double>(ramp.stages);
    const double value =
        ramp.exponential ? from * std::pow(to / from, part) : from + (to - from) * part;
    // i * steps stays in range: there are at most 63 stages, and nobody trains 2^57 steps.
    const auto first =
        static_cast<std::uint64_t>(static_cast<double>(ramp.steps) * static_cast<double>(i) /
                                   static_cast<double>(ramp.stages));
    all.push_back(
        {first, i == 0 ? std::string(ramp.from) : shortest(integers ? std::round(value) : value)});
  }
  all.push_back({static_cast<std::uint64_t>(ramp.steps), std::string(ramp.to)});
  return all;
}

}  // namespace

bool is_schedule(std::string_view value) { return value.find('@') != std::string_view::npos; }

Result<std::vector<ScheduleStage>> parse_schedule(std::string_view value) {
  std::vector<ScheduleStage> stages;
  const std::size_t open = value.find('(');
  const std::string_view shape = value.substr(0, open);
  if (open != std::string_view::npos) {
    if ((shape != "linear" && shape != "exp") || value.back() != ')') {
      return bad_schedule(value,
                          "'" + std::string(shape) + "' is neither linear nor exp, or ')' lacks");
    }
    const std::string_view inside = value.substr(open + 1, value.size() - open - 2);
    GW_ASSIGN(const Ramp ramp, read_ramp(value, inside, shape == "exp"));
    stages = stages_of(ramp);
  } else {
    GW_ASSIGN(stages, read_stages(value));
  }
  if (stages.size() > kMostScheduleStages) {
    return bad_schedule(value,
                        format("%zu values, at most %zu", stages.size(), kMostScheduleStages));
  }
  const auto same = [](const ScheduleStage& a, const ScheduleStage& b) {
    return a.value == b.value;
  };
  stages.erase(std::unique(stages.begin(), stages.end(), same), stages.end());
  return stages;
}

}  // namespace gradwire
