// A worker's gradients without a model: of a quadratic with its minimum elsewhere for every worker,
// with noise, all of it a pure function of (worker, step, element).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "adapters/trainer/modes/mode.h"
#include "base/philox.h"

namespace gradwire::testing {

// 48 + 8 + 1280 + 40 elements: one tensor is large enough to be compressed by default.
inline const ParameterTable& toy_table() {
  static const ParameterTable kTable{{"a.weight", Shape::matrix(8, 6), 6, 0},
                                     {"a.bias", Shape::vector(8), 6, 48},
                                     {"b.weight", Shape::matrix(40, 32), 32, 56},
                                     {"b.bias", Shape::vector(40), 32, 1336}};
  return kTable;
}
inline constexpr std::size_t kToyElems = 1376;

// Its parameters as the scheme "xavier" starts them.
inline void toy_xavier(std::uint64_t seed, std::span<float> flat) {
  ParameterTable table = toy_table();
  for (ParameterInfo& info : table) EXPECT_TRUE(set_init(info, "xavier"));
  init_parameters<float>(table, seed, flat);
}

inline float toy_draw(int worker, std::int64_t step, std::size_t element) {
  const RandomStream draws(7, RandomUse::kTest, 1, worker, 0, static_cast<std::uint64_t>(step));
  return 2 * draws.uniform(element) - 1;
}
inline float toy_target(int worker, std::size_t element) {
  return toy_draw(worker, 1'000'000, element);
}
inline std::vector<float> toy_start() {
  std::vector<float> start(kToyElems);
  for (std::size_t i = 0; i < start.size(); ++i) start[i] = 3 * toy_draw(99, 5, i);
  return start;
}

class ToySource : public GradientSource {
 public:
  explicit ToySource(int worker, float noise = 0.1F) : worker_(worker), noise_(noise) {}

  const ParameterTable& parameters() const override { return toy_table(); }
  Result<double> gradient(std::span<const float> params, std::int64_t step,
                          std::span<float> grads) override {
    double loss = 0;
    for (std::size_t i = 0; i < params.size(); ++i) {
      const float away = params[i] - toy_target(worker_, i);
      grads[i] = away + noise_ * toy_draw(worker_, step, i);
      loss += 0.5 * away * away;
    }
    return loss / static_cast<double>(params.size());
  }
  int worker() const { return worker_; }

 private:
  int worker_;
  float noise_;
};

// Has no gradients.
class StillSource final : public ToySource {
 public:
  using ToySource::ToySource;
  Result<double> gradient(std::span<const float>, std::int64_t, std::span<float> grads) override {
    for (float& g : grads) g = 0;
    return 0;
  }
};

}  // namespace gradwire::testing
