#include "trainer/optimizers/lamb.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/clipping.h"
#include "trainer/cuda/make_kernels.h"
#include "trainer/optimizers/adamw.h"
#include "trainer/optimizers/flat_state.h"
#include "trainer/read_back.h"

namespace gradwire {
namespace {

class Lamb final : public Optimizer {
 public:
  // What a device computes by, and its sums of squares; nothing of it on the host.
  struct There {
    std::unique_ptr<StepKernels> kernels;
    ReadBack sums;
  };

  Lamb(const OptimizerOptions& options, SliceTable slices, SumOverShards sum, FlatState state,
       FlatState direction, There there)
      : options_(options),
        slices_(std::move(slices)),
        sum_(std::move(sum)),
        state_(std::move(state)),
        direction_(std::move(direction)),
        sums_(2 * slices_.size()),
        there_(std::move(there)) {}

  Status step(std::span<float> x, std::span<const float> g, double lr) override {
    const AdamFactors factors(options_, steps_++);
    if (there_.kernels != nullptr) return step_there(factors, x, g, lr);
    for (std::size_t t = 0; t < slices_.size(); ++t) {
      const std::span<float> u = of(direction_[0], t);
      direct(factors, of(x, t), of(g, t), t, u);
      sums_[2 * t] = sum_of_squares(of(x, t));
      sums_[2 * t + 1] = sum_of_squares(u);
    }
    if (sum_) GW_TRY(sum_(sums_));
    for (std::size_t t = 0; t < slices_.size(); ++t) {
      const double ratio = trust(std::sqrt(sums_[2 * t]), std::sqrt(sums_[2 * t + 1]));
      const auto rate = static_cast<float>(lr * ratio);
      const std::span<float> own = of(x, t);
      const std::span<const float> u = of(direction_[0], t);
      for (std::size_t i = 0; i < own.size(); ++i) own[i] -= rate * u[i];
    }
    return {};
  }

  std::vector<NamedTensor> state() override { return state_.named(slices_); }

 private:
  // The host hears nothing of lengths, but for shards', which it adds up over ranks: a tensor's
  // step reads its two sums on the device.
  Status step_there(const AdamFactors& factors, std::span<float> x, std::span<const float> g,
                    double lr) {
    const std::span<double> sums = there_.sums.there<double>();
    for (std::size_t t = 0; t < slices_.size(); ++t) {
      if (slices_[t].elems == 0) continue;
      const std::span<float> u = of(direction_[0], t);
      const float decay = slices_[t].decays ? static_cast<float>(options_.weight_decay) : 0.0F;
      GW_TRY(there_.kernels->lamb_direction(factors, decay, of(x, t), of(state_[0], t),
                                            of(state_[1], t), of(g, t), u));
      GW_TRY(there_.kernels->sum_of_squares(of(x, t), sums.subspan(2 * t, 1)));
      GW_TRY(there_.kernels->sum_of_squares(u, sums.subspan(2 * t + 1, 1)));
    }
    if (sum_) GW_TRY(sum_there());
    for (std::size_t t = 0; t < slices_.size(); ++t) {
      if (slices_[t].elems == 0) continue;
      GW_TRY(there_.kernels->lamb_step(lr, sums.subspan(2 * t, 2), of(direction_[0], t), of(x, t)));
    }
    return {};
  }

  // Of tensors that this rank holds nothing of, its own sums are 0, whatever was written there.
  Status sum_there() {
    GW_ASSIGN(const std::span<const double> own, there_.sums.read<double>());
    std::ranges::copy(own, sums_.begin());
    for (std::size_t t = 0; t < slices_.size(); ++t) {
      if (slices_[t].elems == 0) sums_[2 * t] = sums_[2 * t + 1] = 0;
    }
    GW_TRY(sum_(sums_));
    return there_.sums.write(std::span<const double>(sums_));
  }

  template <typename T>
  std::span<T> of(std::span<T> all, std::size_t t) const {
    return all.subspan(static_cast<std::size_t>(slices_[t].offset),
                       static_cast<std::size_t>(slices_[t].elems));
  }

  static double trust(double x, double u) { return x > 0 && u > 0 ? x / u : 1; }

  void direct(const AdamFactors& f, std::span<const float> x, std::span<const float> g,
              std::size_t t, std::span<float> u) {
    const std::span<float> m = of(state_[0], t);
    const std::span<float> v = of(state_[1], t);
    const float decay = slices_[t].decays ? static_cast<float>(options_.weight_decay) : 0.0F;
    for (std::size_t i = 0; i < x.size(); ++i) {
      adam_moments(f, g[i], m[i], v[i]);
      u[i] = m[i] * f.correct1 / (std::sqrt(v[i] * f.correct2) + f.epsilon) + decay * x[i];
    }
  }

  OptimizerOptions options_;
  SliceTable slices_;
  SumOverShards sum_;
  FlatState state_;
  FlatState direction_;  // between the two passes of one step
  std::vector<double> sums_;
  There there_;
};

}  // namespace

Result<std::unique_ptr<Optimizer>> make_lamb(const OptimizerOptions& options, SliceTable slices,
                                             SumOverShards sum, const MemoryArena& arena) {
  GW_ASSIGN(FlatState state, FlatState::allocate(slices, {"exp_avg", "exp_avg_sq"}, arena));
  GW_ASSIGN(FlatState direction, FlatState::allocate(slices, {"direction"}, arena));
  Lamb::There there;
  GW_ASSIGN(there.kernels, make_step_kernels(arena.stream()));
  if (there.kernels != nullptr) {
    GW_ASSIGN(there.sums, ReadBack::create(arena, 2 * slices.size() * sizeof(double)));
  }
  return std::unique_ptr<Optimizer>(std::make_unique<Lamb>(options, std::move(slices),
                                                           std::move(sum), std::move(state),
                                                           std::move(direction), std::move(there)));
}

}  // namespace gradwire
