// Distributions over a few choices.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "planner/search/draws.h"

namespace gradwire {

// In place; there is at least one.
inline void softmax(std::vector<double>& logits) {
  const double most = *std::ranges::max_element(logits);
  double sum = 0;
  for (double& one : logits) sum += one = std::exp(one - most);
  for (double& one : logits) one /= sum;
}

// The choice that a number in [0, 1) falls to.
inline int draw_one(const std::vector<double>& probabilities, SearchDraws& draws) {
  double left = draws.uniform();
  std::size_t choice = 0;
  while (choice + 1 < probabilities.size() && left >= probabilities[choice]) {
    left -= probabilities[choice++];
  }
  return static_cast<int>(choice);
}

inline double entropy_of(const std::vector<double>& probabilities) {
  constexpr double kLeast = 1e-12;
  double entropy = 0;
  for (const double one : probabilities) entropy -= one * std::log(one + kLeast);
  return entropy;
}

// By logit: weight * d log p(chosen) + entropy * dH = weight (1 - p), or -weight p where it was not
// chosen, and -entropy p (log p + H).
inline std::vector<double> logit_gradient(const std::vector<double>& probabilities, int chosen,
                                          double weight, double entropy) {
  constexpr double kLeast = 1e-12;
  const double all = entropy_of(probabilities);
  std::vector<double> gradient;
  for (const double one : probabilities) {
    gradient.push_back(-weight * one - entropy * one * (std::log(one + kLeast) + all));
  }
  gradient[static_cast<std::size_t>(chosen)] += weight;
  return gradient;
}

}  // namespace gradwire
