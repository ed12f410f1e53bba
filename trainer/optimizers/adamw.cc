#include "trainer/optimizers/adamw.h"

#include <cmath>
#include <utility>

#include "trainer/cuda/make_kernels.h"
#include "trainer/layers/block_part.h"
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

  Status step(std::span<float> x, std::span<const float> g, double lr) override {
    GW_TRY(begin_step(lr));
    if (there_ != nullptr) return step_there(x, g);
    step_part(x, g, 0);
    return {};
  }

  Status begin_step(double lr) override {
    factors_ = AdamFactors(options_, steps_++);
    lr_ = lr;
    return {};
  }

  void step_part(std::span<float> x, std::span<const float> g, std::int64_t first) override {
    const auto end = first + static_cast<std::int64_t>(x.size());
    const auto begin = static_cast<std::size_t>(first);
    visit_slices(
        slices_, first, end, [&](const TensorSlice& slice, std::size_t from, std::size_t count) {
          const double decay = decay_of(slice.decays);
          step_slice(factors_, x.subspan(from - begin, count), g.subspan(from - begin, count),
                     state_[0].subspan(from, count), state_[1].subspan(from, count),
                     static_cast<float>(lr_), static_cast<float>(decay));
        });
  }

  std::vector<NamedTensor> state() override { return state_.named(slices_); }

 private:
  double decay_of(bool decays) const { return decays ? lr_ * options_.weight_decay : 0; }

  Status step_there(std::span<float> x, std::span<const float> g) {
    for (const auto& [name, begin, elems, offset, decays] : slices_) {
      GW_TRY(there_->adamw(factors_, static_cast<float>(lr_), static_cast<float>(decay_of(decays)),
                           part_of(x, offset, elems), part_of(state_[0], offset, elems),
                           part_of(state_[1], offset, elems), part_of(g, offset, elems)));
    }
    return {};
  }

  static void step_slice(const AdamFactors& f, std::span<float> x, std::span<const float> g,
                         std::span<float> m, std::span<float> v, float rate, float decay) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      adam_moments(f, g[i], m[i], v[i]);
      const float direction = m[i] * f.correct1 / (std::sqrt(v[i] * f.correct2) + f.epsilon);
      x[i] -= rate * direction + decay * x[i];
    }
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
