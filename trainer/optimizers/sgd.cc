#include "trainer/optimizers/sgd.h"

#include <utility>

#include "trainer/optimizers/flat_state.h"
#include "trainer/sgd.h"

namespace gradwire {
namespace {

class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerOptions& options, SliceTable slices, FlatState state, bool nesterov)
      : momentum_(static_cast<float>(options.momentum)),
        decay_(static_cast<float>(options.weight_decay)),
        nesterov_(nesterov),
        slices_(std::move(slices)),
        state_(std::move(state)) {}

  Status step(std::span<float> x, std::span<const float> g, double lr) override {
    const auto rate = static_cast<float>(lr);
    ++steps_;
    // Nothing that tells the tensors apart: one pass over all of them.
    if (decay_ == 0) {
      step_range(x, g, rate, 0, 0, x.size());
      return {};
    }
    for (const TensorSlice& slice : slices_) {
      step_range(x, g, rate, slice.decays ? decay_ : 0.0F, static_cast<std::size_t>(slice.offset),
                 static_cast<std::size_t>(slice.elems));
    }
    return {};
  }

  std::vector<NamedTensor> state() override { return state_.named(slices_); }

 private:
  void step_range(std::span<float> all_x, std::span<const float> all_g, float rate, float decay,
                  std::size_t first, std::size_t count) {
    const std::span<float> x = all_x.subspan(first, count);
    const std::span<const float> g = all_g.subspan(first, count);
    const std::span<float> m = momentum_ > 0 ? state_[0].subspan(first, count) : std::span<float>();
    if (!nesterov_ && decay == 0) {
      return m.empty() ? descend(x, g, rate) : descend_with_momentum(x, m, g, rate, momentum_);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const float full = decay == 0 ? g[i] : g[i] + decay * x[i];
      float direction = full;
      if (!m.empty()) {
        m[i] = momentum_ * m[i] + full;
        direction = nesterov_ ? full + momentum_ * m[i] : m[i];
      }
      x[i] -= rate * direction;
    }
  }

  float momentum_;
  float decay_;
  bool nesterov_;
  SliceTable slices_;
  FlatState state_;
};

Result<std::unique_ptr<Optimizer>> make(const OptimizerOptions& options, SliceTable slices,
                                        bool nesterov) {
  std::vector<std::string> kinds;
  if (options.momentum > 0) kinds.emplace_back("momentum");
  GW_ASSIGN(FlatState state, FlatState::allocate(slices, std::move(kinds)));
  return std::unique_ptr<Optimizer>(
      std::make_unique<Sgd>(options, std::move(slices), std::move(state), nesterov));
}

}  // namespace

Result<std::unique_ptr<Optimizer>> make_sgd(const OptimizerOptions& options, SliceTable slices) {
  return make(options, std::move(slices), false);
}

Result<std::unique_ptr<Optimizer>> make_nesterov(const OptimizerOptions& options,
                                                 SliceTable slices) {
  return make(options, std::move(slices), true);
}

}  // namespace gradwire
