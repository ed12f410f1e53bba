#include "bench/nmse_data.h"

#include <cmath>
#include <numbers>

#include "base/philox.h"

namespace gradwire {
namespace {

// Two normal numbers from two words by Box and Muller; signs from a stream of their own.
void draw(NmseData data, const RandomStream& stream, std::vector<double>& x) {
  std::vector<std::uint32_t> words(2 * x.size() + 2);
  stream.words(0, words);
  const RandomStream signs(stream.key(), RandomUse::kTest, 1, 0, 0, stream.step());
  std::vector<std::uint32_t> flips(x.size());
  if (data == NmseData::kLognormal) signs.words(0, flips);
  for (std::size_t i = 0; i < x.size(); i += 2) {
    const double u = (static_cast<double>(words[2 * i]) + 1.0) * 0x1p-32;
    const double v = static_cast<double>(words[2 * i + 1]) * 0x1p-32;
    const double radius = std::sqrt(-2.0 * std::log(u));
    x[i] = radius * std::cos(2.0 * std::numbers::pi * v);
    if (i + 1 < x.size()) x[i + 1] = radius * std::sin(2.0 * std::numbers::pi * v);
  }
  if (data == NmseData::kGaussian) return;
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = std::exp(1.5 * x[i]) * ((flips[i] & 1u) == 0 ? 1 : -1);
  }
}

}  // namespace

std::vector<std::vector<float>> nmse_gradients(NmseData data, std::uint64_t seed,
                                               std::int64_t elements, int ranks) {
  const auto count = static_cast<std::size_t>(elements);
  const auto drawn = [&](int rank) {
    std::vector<double> x(count);
    const RandomStream stream(seed, RandomUse::kTest, static_cast<std::uint64_t>(data), rank, 0, 0);
    draw(data, stream, x);
    return x;
  };
  const std::vector<double> shared = drawn(kSharedRank);
  std::vector<std::vector<float>> all;
  all.emplace_back(shared.begin(), shared.end());
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<double> own = drawn(rank);
    std::vector<float>& x = all.emplace_back(count);
    for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<float>(shared[i] + own[i]);
  }
  return all;
}

}  // namespace gradwire
