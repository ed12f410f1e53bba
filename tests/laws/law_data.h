// What the laws of gradwire/testing/compressor_laws.h are tested with: gradients, norms, averages.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "base/philox.h"
#include "gradwire/testing/compressor_laws.h"
#include "tests/support/coder_ranks.h"

namespace gradwire::laws {

// A law of the suite. Each of its files has a table of them, which subjects() goes through: of a
// static library the linker takes only what somebody names.
struct Law {
  const char* name;
  void (*check)(const JudgedMethod& method);
  // Whether the law speaks of such a method at all; null: of every one.
  bool (*applies)(const Compressor& compressor, const CompressorCase& one) = nullptr;
};
std::vector<Law> claim_laws();
std::vector<Law> edge_laws();
std::vector<Law> hostile_laws();
std::vector<Law> slice_laws();
std::vector<Law> state_laws();
std::vector<Law> thread_laws();

// GW_LAW(Name) { ... } defines the function Name for its file's table; the body is a member of the
// method that it judges. A law that no table names is a function that is not used: a warning.
#define GW_LAW(Name)                                                         \
  struct Name##Law : JudgedMethod {                                          \
    explicit Name##Law(const JudgedMethod& method) : JudgedMethod(method) {} \
    void check() const;                                                      \
  };                                                                         \
  void Name(const JudgedMethod& method) { Name##Law(method).check(); }       \
  void Name##Law::check() const

// Kinds of gradients: Gaussian, heavy tails, one spike over small values, constant magnitude.
inline constexpr int kDataKinds = 4;
template <typename T>
std::vector<T> new_gradient(std::int64_t elems, int kind, std::uint64_t key) {
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

// The same for every method, so it is computed once: normal random numbers would take half of the
// laws' time.
template <typename T>
std::vector<T> gradient(std::int64_t elems, int kind, std::uint64_t key) {
  constexpr std::int64_t kLargest = 1 << 18;  // elements of one that is kept
  constexpr std::int64_t kMost = 1 << 24;     // elements of all that are kept
  static thread_local std::map<std::tuple<std::int64_t, int, std::uint64_t>, std::vector<T>> kept;
  static thread_local std::int64_t kept_elems = 0;
  if (elems > kLargest) return new_gradient<T>(elems, kind, key);
  if (kept_elems + elems > kMost) {
    kept.clear();
    kept_elems = 0;
  }
  const auto [place, is_new] = kept.try_emplace({elems, kind, key});
  if (is_new) {
    place->second = new_gradient<T>(elems, kind, key);
    kept_elems += elems;
  }
  return place->second;
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
