// Workers of an optimisation toy: registered coders, with or without error feedback, driven with
// exact arithmetic around them. Toys feed the step times the gradient, so that residuals are in
// step units: x <- x - mean.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "compress/error_feedback/ef14.h"
#include "compress/error_feedback/ef21.h"
#include "gradwire/registry.h"
#include "tests/support/coder_ranks.h"

namespace gradwire::testing {

enum class Memory { kNone, kEf14, kEf21 };

inline std::unique_ptr<Coder> with_memory(Memory memory, std::unique_ptr<Coder> inner,
                                          const Shape& shape, const Compressor::Placement& where) {
  switch (memory) {
    case Memory::kNone: break;
    case Memory::kEf14: return std::move(make_ef14(std::move(inner), shape, where)).value();
    case Memory::kEf21: return std::move(make_ef21(std::move(inner), shape, where)).value();
  }
  return inner;
}

template <typename T>
class Workers {
 public:
  Workers(std::string_view spec, const Shape& shape, int size, Memory memory = Memory::kNone,
          std::uint64_t seed = 1)
      : compressor_(std::move(Registry::builtin().make(spec)).value()),
        ranks_(std::move(CoderRanks<T>::open(*compressor_, shape, size, seed, 77,
                                             [memory](auto inner, const Shape& s, const auto& w) {
                                               return with_memory(memory, std::move(inner), s, w);
                                             }))
                   .value()) {}

  // One step; what every worker receives.
  std::vector<T> mean(const std::vector<std::vector<T>>& vectors) {
    StepOutcome<T> out = ranks_.step(vectors, step_++);
    EXPECT_TRUE(out.status.ok()) << out.status.message();
    return out.status.ok() ? std::move(out.mean[0]) : std::vector<T>(vectors[0].size());
  }
  CoderRanks<T>& ranks() { return ranks_; }

 private:
  std::unique_ptr<Compressor> compressor_;
  CoderRanks<T> ranks_;
  std::uint64_t step_ = 0;
};

template <typename T>
T inner(const std::vector<T>& a, const std::vector<T>& b) {
  T sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
template <typename T>
std::vector<T> times(T factor, std::vector<T> a) {
  for (T& x : a) x *= factor;
  return a;
}
template <typename T>
void subtract(std::vector<T>& a, const std::vector<T>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
}
template <typename T>
double norm(const std::vector<T>& a) {
  double sum = 0;
  for (const T x : a) sum += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(sum);
}

}  // namespace gradwire::testing
