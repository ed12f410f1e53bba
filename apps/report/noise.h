// The noise of a difference between two test accuracies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace gradwire {

struct Spread {
  double mean = 0;
  double sd = 0;  // sample standard deviation; 0 for one value
  double least = 0;
  double most = 0;
  std::size_t count = 0;
};

// Student's t: the half width, in standard errors, of a 95 % interval of a mean of `count` values.
// count >= 2.
double student_95(std::size_t count);

// Half of the 95 % interval of a mean over seeds; nullopt for less than two of them.
std::optional<double> seeds_noise(const Spread& spread);

// Half of the 95 % interval, in percent points, of the difference between accuracies of `row` and
// `other` percent on a test set of so many samples: two independent binomial shares, each of
// (correct + 1) in (samples + 2), so that 100 % has a width too. That both are of the same samples
// is not used: it makes the interval wide rather than narrow.
// Source: Agresti and Caffo, The American Statistician 54 (4), 2000.
double test_set_noise(double row, double other, std::int64_t samples);

// Both together: the sources are independent. nullopt where neither is known.
std::optional<double> noise_of(const Spread& difference, double row, double other,
                               std::optional<std::int64_t> samples);

// What may be said of a difference.
enum class Verdict : std::uint8_t {
  kNone,         // there is no difference: no run, or the row is the baseline
  kWithinNoise,  // zero is inside its 95 % interval
  kLower,
  kHigher,
  kUnknown  // of one seed, and more than the test set alone explains
};
Verdict verdict_of(const Spread& difference, std::optional<double> noise);

}  // namespace gradwire
