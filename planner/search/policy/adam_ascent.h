// Adam, uphill.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace gradwire {

// Source: Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015, algorithm 1.
class AdamAscent {
 public:
  AdamAscent(std::size_t parameters, double step_size)
      : step_size_(step_size), first_(parameters), second_(parameters) {}

  // Moves parameters along the gradient, which becomes 0.
  void step(std::vector<double>& parameters, std::vector<double>& gradient) {
    constexpr double kFirst = 0.9;
    constexpr double kSecond = 0.999;
    constexpr double kSmall = 1e-8;
    ++steps_;
    const double first_left = 1 - std::pow(kFirst, steps_);
    const double second_left = 1 - std::pow(kSecond, steps_);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      first_[i] = kFirst * first_[i] + (1 - kFirst) * gradient[i];
      second_[i] = kSecond * second_[i] + (1 - kSecond) * gradient[i] * gradient[i];
      const double mean = first_[i] / first_left;
      const double square = second_[i] / second_left;
      parameters[i] += step_size_ * mean / (std::sqrt(square) + kSmall);
      gradient[i] = 0;
    }
  }

 private:
  double step_size_;
  std::vector<double> first_;
  std::vector<double> second_;
  int steps_ = 0;
};

}  // namespace gradwire
