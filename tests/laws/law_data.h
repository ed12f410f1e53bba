// What the laws of gradwire/testing/compressor_laws.h are tested with: gradients, norms, averages.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/philox.h"
#include "gradwire/testing/compressor_laws.h"
#include "tests/support/coder_ranks.h"

namespace gradwire::laws {

// The laws' files have a function each that subjects() calls: of a static library the linker takes
// only what somebody names.
bool edge_laws_are_linked();
bool hostile_laws_are_linked();
bool slice_laws_are_linked();
bool state_laws_are_linked();
bool thread_laws_are_linked();

// Kinds of gradients: Gaussian, heavy tails, one spike over small values, constant magnitude.
inline constexpr int kDataKinds = 4;
template <typename T>
std::vector<T> gradient(std::int64_t elems, int kind, std::uint64_t key) {
  const RandomStream stream(11, RandomUse::kTest, key, 0, kind, 0);
  std::vector<T> x(static_cast<std::size_t>(elems));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double z = stream.normal(i);
    switch (kind) {
      case 0: x[i] = static_cast<T>(z); break;
      case 1:
        x[i] = static_cast<T>(std::exp(1.5 * z) * (stream.word(2 * i) % 2 == 0 ? 1 : -1));
        break;
      case 2: x[i] = static_cast<T>(i == x.size() / 2 ? 30.0 : 0.01 * z); break;
      default: x[i] = static_cast<T>(z < 0 ? -0.75 : 0.75);
    }
  }
  return x;
}

// One gradient for each rank, different on all.
template <typename T>
std::vector<std::vector<T>> gradients(std::int64_t elems, int kind, int ranks, std::uint64_t step) {
  std::vector<std::vector<T>> all;
  for (int r = 0; r < ranks; ++r) {
    all.push_back(gradient<T>(elems, kind, 100 * step + static_cast<std::uint64_t>(r)));
  }
  return all;
}

template <typename T>
double squared(const std::vector<T>& x) {
  double sum = 0;
  for (const T value : x) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}
// Of x and scale * y.
template <typename T>
double squared_distance(const std::vector<T>& x, const std::vector<T>& y, double scale = 1) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double d = static_cast<double>(x[i]) - scale * static_cast<double>(y[i]);
    sum += d * d;
  }
  return sum;
}
template <typename T>
double largest(const std::vector<T>& x) {
  double most = 0;
  for (const T value : x) most = std::max(most, std::abs(static_cast<double>(value)));
  return most;
}

template <typename T>
std::vector<double> average(const std::vector<std::vector<T>>& by_rank) {
  std::vector<double> mean(by_rank[0].size());
  for (const auto& x : by_rank) {
    for (std::size_t i = 0; i < x.size(); ++i) mean[i] += static_cast<double>(x[i]);
  }
  for (double& value : mean) value /= static_cast<double>(by_rank.size());
  return mean;
}

// The largest magnitudes over ranks, element by element.
template <typename T>
std::vector<T> largest_of(const std::vector<std::vector<T>>& by_rank) {
  std::vector<T> most(by_rank[0].size());
  for (const auto& x : by_rank) {
    for (std::size_t i = 0; i < x.size(); ++i) most[i] = std::max(most[i], std::abs(x[i]));
  }
  return most;
}

// Same bytes: NaN equals itself, -0 differs from 0.
template <typename T>
bool same_bits(const std::vector<T>& x, const std::vector<T>& y) {
  return x.size() == y.size() &&
         (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0);
}

// How far a mean may be from the average of own, relative to the largest |own|: sums are rounded in
// the payload's type after each of `ranks` additions; products of thin factors a few times more.
template <typename T>
double rounding(const Traits& traits, int ranks) {
  double unit = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;
  if (traits.exchange == Exchange::kAllReduceSum) {
    if (traits.payload_dtype == DType::kF16) unit = 0x1p-11;
    if (traits.payload_dtype == DType::kBF16) unit = 0x1p-8;
  }
  return 32 * unit * ranks;
}

}  // namespace gradwire::laws
