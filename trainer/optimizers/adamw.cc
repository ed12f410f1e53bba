#include "trainer/optimizers/adamw.h"

#include <cmath>
#include <utility>

#include "trainer/cuda/make_kernels.h"
#include "trainer/optimizers/flat_state.h"

namespace gradwire {
namespace {

class AdamW final : public Optimizer {
 public:
  AdamW(const OptimizerOptions& options, SliceTable slices, FlatState state,
        std::unique_ptr<StepKernels> there)
      : options_(options),
        factors_(options, 0),
        slices_(std::move(slices)),
        state_(std::move(state)),
        there_(std::move(there)) {}

  Status begin_step(double lr) override {
    factors_ = AdamFactors(options_, steps_++);
    lr_ = lr;
    return {};
  }

  Status step_part(std::span<float> x, std::span<const float> g, std::int64_t first) override {
    const auto end = first + static_cast<std::int64_t>(x.size());
    const auto begin = static_cast<std::size_t>(first);
    return visit_slices(
        slices_, first, end, [&](const TensorSlice& slice, std::size_t from, std::size_t count) {
          return step_slice(slice.decays, x.subspan(from - begin, count),
                            g.subspan(from - begin, count), state_[0].subspan(from, count),
                            state_[1].subspan(from, count));
        });
  }

  std::vector<NamedTensor> state() override { return state_.named(slices_); }

 private:
  Status step_slice(bool decays, std::span<float> x, std::span<const float> g, std::span<float> m,
                    std::span<float> v) {
    const AdamFactors& f = factors_;
    const auto rate = static_cast<float>(lr_);
    const auto decay = static_cast<float>(decays ? lr_ * options_.weight_decay : 0);
    if (there_ != nullptr) return there_->adamw(f, rate, decay, x, m, v, g);
    for (std::size_t i = 0; i < x.size(); ++i) {
      adam_moments(f, g[i], m[i], v[i]);
      const float direction = m[i] * f.correct1 / (std::sqrt(v[i] * f.correct2) + f.epsilon);
      x[i] -= rate * direction + decay * x[i];
    }
    return {};
  }

  OptimizerOptions options_;
  AdamFactors factors_;  // of the step that is being made
  double lr_ = 0;
  SliceTable slices_;
  FlatState state_;
  std::unique_ptr<StepKernels> there_;  // null on the host
};

}  // namespace

AdamFactors::AdamFactors(const OptimizerOptions& options, std::int64_t done)
    : beta1(static_cast<float>(options.beta1)),
      rest1(static_cast<float>(1 - options.beta1)),
      beta2(static_cast<float>(options.beta2)),
      rest2(static_cast<float>(1 - options.beta2)),
      correct1(
          static_cast<float>(1 / (1 - std::pow(options.beta1, static_cast<double>(done + 1))))),
      correct2(
          static_cast<float>(1 / (1 - std::pow(options.beta2, static_cast<double>(done + 1))))),
      epsilon(static_cast<float>(options.epsilon)) {}

Result<std::unique_ptr<Optimizer>> make_adamw(const OptimizerOptions& options, SliceTable slices,
                                              const MemoryArena& arena) {
  GW_ASSIGN(FlatState state, FlatState::allocate(slices, {"exp_avg", "exp_avg_sq"}, arena));
  GW_ASSIGN(auto there, make_step_kernels(arena.stream()));
  return std::unique_ptr<Optimizer>(
      std::make_unique<AdamW>(options, std::move(slices), std::move(state), std::move(there)));
}

}  // namespace gradwire
