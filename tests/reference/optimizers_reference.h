// Optimizers written straight from their papers, one tensor at a time, in double: the oracle of
// trainer/optimizers.
#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "trainer/optimizers/optimizer.h"

namespace gradwire::reference {

// One tensor's parameters and all that its optimizer remembers.
struct Tensor {
  std::vector<double> x;
  std::vector<double> m = std::vector<double>(x.size());
  std::vector<double> v = std::vector<double>(x.size());
  bool decays = true;
};

inline double length(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

// m <- mu m + g'; heavy ball goes along m, Nesterov along g' + mu m. g' = g + decay x.
inline void momentum_step(Tensor& t, const std::vector<double>& g, const OptimizerOptions& o,
                          double lr) {
  for (std::size_t i = 0; i < t.x.size(); ++i) {
    const double full = g[i] + (t.decays ? o.weight_decay * t.x[i] : 0);
    t.m[i] = o.momentum * t.m[i] + full;
    t.x[i] -= lr * (o.name == "nesterov" ? full + o.momentum * t.m[i] : t.m[i]);
  }
}

// Adam's direction of step `number` (from 1), without decay.
inline std::vector<double> adam_direction(Tensor& t, const std::vector<double>& g,
                                          const OptimizerOptions& o, int number) {
  std::vector<double> direction(t.x.size());
  for (std::size_t i = 0; i < t.x.size(); ++i) {
    t.m[i] = o.beta1 * t.m[i] + (1 - o.beta1) * g[i];
    t.v[i] = o.beta2 * t.v[i] + (1 - o.beta2) * g[i] * g[i];
    const double mean = t.m[i] / (1 - std::pow(o.beta1, number));
    const double square = t.v[i] / (1 - std::pow(o.beta2, number));
    direction[i] = mean / (std::sqrt(square) + o.epsilon);
  }
  return direction;
}

inline void adamw_step(Tensor& t, const std::vector<double>& g, const OptimizerOptions& o,
                       double lr, int number) {
  const std::vector<double> direction = adam_direction(t, g, o, number);
  for (std::size_t i = 0; i < t.x.size(); ++i) {
    const double decay = t.decays ? o.weight_decay * t.x[i] : 0;
    t.x[i] -= lr * (direction[i] + decay);
  }
}

inline void lamb_step(Tensor& t, const std::vector<double>& g, const OptimizerOptions& o, double lr,
                      int number) {
  std::vector<double> u = adam_direction(t, g, o, number);
  for (std::size_t i = 0; i < t.x.size(); ++i) u[i] += t.decays ? o.weight_decay * t.x[i] : 0;
  const double long_x = length(t.x);
  const double long_u = length(u);
  const double ratio = long_x > 0 && long_u > 0 ? long_x / long_u : 1;
  for (std::size_t i = 0; i < t.x.size(); ++i) t.x[i] -= lr * ratio * u[i];
}

inline void step(Tensor& t, const std::vector<double>& g, const OptimizerOptions& o, double lr,
                 int number) {
  if (o.name == "adamw") return adamw_step(t, g, o, lr, number);
  if (o.name == "lamb") return lamb_step(t, g, o, lr, number);
  momentum_step(t, g, o, lr);
}

}  // namespace gradwire::reference
