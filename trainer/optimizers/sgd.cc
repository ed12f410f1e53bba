#include "trainer/optimizers/sgd.h"

#include <utility>

#include "trainer/cuda/make_kernels.h"
#include "trainer/optimizers/flat_state.h"
#include "trainer/sgd.h"

namespace gradwire {
namespace {

class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerOptions& options, SliceTable slices, FlatState state, bool nesterov,
      std::unique_ptr<StepKernels> there)
      : momentum_(static_cast<float>(options.momentum)),
        decay_(static_cast<float>(options.weight_decay)),
        nesterov_(nesterov),
        slices_(std::move(slices)),
        state_(std::move(state)),
        there_(std::move(there)) {}

  Status begin_step(double lr) override {
    rate_ = static_cast<float>(lr);
    ++steps_;
    return {};
  }

  Status step_part(std::span<float> x, std::span<const float> g, std::int64_t first) override {
    const auto begin = static_cast<std::size_t>(first);
    const auto end = first + static_cast<std::int64_t>(x.size());
    // Nothing that tells the tensors apart: one pass over all of them.
    if (decay_ == 0) return step_range(x, g, 0, begin);
    return visit_slices(
        slices_, first, end, [&](const TensorSlice& slice, std::size_t from, std::size_t count) {
          return step_range(x.subspan(from - begin, count), g.subspan(from - begin, count),
                            slice.decays ? decay_ : 0.0F, from);
        });
  }

  std::vector<NamedTensor> state() override { return state_.named(slices_); }

 private:
  // x and g are elements of the spans from `first` on.
  Status step_range(std::span<float> x, std::span<const float> g, float decay, std::size_t first) {
    const std::span<float> m =
        momentum_ > 0 ? state_[0].subspan(first, x.size()) : std::span<float>();
    if (there_ != nullptr) return there_->sgd({rate_, momentum_, decay, nesterov_}, x, m, g);
    if (nesterov_ || decay != 0) {
      step_here(x, m, g, decay);
    } else if (m.empty()) {
      descend(x, g, rate_);
    } else {
      descend_with_momentum(x, m, g, rate_, momentum_);
    }
    return {};
  }

  void step_here(std::span<float> x, std::span<float> m, std::span<const float> g,
                 float decay) const {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float full = decay == 0 ? g[i] : g[i] + decay * x[i];
      float direction = full;
      if (!m.empty()) {
        m[i] = momentum_ * m[i] + full;
        direction = nesterov_ ? full + momentum_ * m[i] : m[i];
      }
      x[i] -= rate_ * direction;
    }
  }

  float momentum_;
  float decay_;
  float rate_ = 0;  // of the step that is being made
  bool nesterov_;
  SliceTable slices_;
  FlatState state_;
  std::unique_ptr<StepKernels> there_;  // null on the host
};

Result<std::unique_ptr<Optimizer>> make(const OptimizerOptions& options, SliceTable slices,
                                        bool nesterov, const MemoryArena& arena) {
  std::vector<std::string> kinds;
  if (options.momentum > 0) kinds.emplace_back("momentum");
  GW_ASSIGN(FlatState state, FlatState::allocate(slices, std::move(kinds), arena));
  GW_ASSIGN(auto there, make_step_kernels(arena.stream()));
  return std::unique_ptr<Optimizer>(std::make_unique<Sgd>(
      options, std::move(slices), std::move(state), nesterov, std::move(there)));
}

}  // namespace

Result<std::unique_ptr<Optimizer>> make_sgd(const OptimizerOptions& options, SliceTable slices,
                                            const MemoryArena& arena) {
  return make(options, std::move(slices), false, arena);
}

Result<std::unique_ptr<Optimizer>> make_nesterov(const OptimizerOptions& options, SliceTable slices,
                                                 const MemoryArena& arena) {
  return make(options, std::move(slices), true, arena);
}

}  // namespace gradwire
