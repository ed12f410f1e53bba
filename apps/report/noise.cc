#include "apps/report/noise.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace gradwire {

double student_95(std::size_t count) {
  // The 0.975 quantiles of 1, 2, ... degrees of freedom.
  static constexpr std::array<double, 30> kQuantiles{
      12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
      2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
      2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  const std::size_t freedom = std::max<std::size_t>(count, 2) - 1;
  return freedom <= kQuantiles.size() ? kQuantiles[freedom - 1] : 1.96;
}

std::optional<double> seeds_noise(const Spread& spread) {
  if (spread.count < 2) return std::nullopt;
  return student_95(spread.count) * spread.sd / std::sqrt(static_cast<double>(spread.count));
}

double test_set_noise(double row, double other, std::int64_t samples) {
  const double n = static_cast<double>(samples);
  const auto variance = [n](double percent) {
    const double share = (percent / 100 * n + 1) / (n + 2);
    return share * (1 - share) / (n + 2);
  };
  return 100 * 1.96 * std::sqrt(variance(row) + variance(other));
}

std::optional<double> noise_of(const Spread& difference, double row, double other,
                               std::optional<std::int64_t> samples) {
  const std::optional<double> seeds = seeds_noise(difference);
  if (!samples || *samples <= 0) return seeds;
  const double test_set = test_set_noise(row, other, *samples);
  return seeds ? std::hypot(*seeds, test_set) : test_set;
}

Verdict verdict_of(const Spread& difference, std::optional<double> noise) {
  if (difference.count == 0) return Verdict::kNone;
  if (noise && std::fabs(difference.mean) <= *noise) return Verdict::kWithinNoise;
  if (difference.count < 2) return Verdict::kUnknown;
  return difference.mean < 0 ? Verdict::kLower : Verdict::kHigher;
}

}  // namespace gradwire
