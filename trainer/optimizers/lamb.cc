#include "trainer/optimizers/lamb.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/cuda/make_kernels.h"
#include "trainer/optimizers/adamw.h"
#include "trainer/optimizers/flat_state.h"
#include "trainer/step/clipping.h"
#include "trainer/step/read_back.h"

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
        factors_(options, 0),
        slices_(std::move(slices)),
        sum_(std::move(sum)),
        state_(std::move(state)),
        direction_(std::move(direction)),
        sums_(2 * slices_.size()),
        there_(std::move(there)) {}

  Status begin_step(double lr) override {
    factors_ = AdamFactors(options_, steps_++);
    lr_ = lr;
    std::ranges::fill(sums_, 0.0);
    return {};
  }

  Status step_part(std::span<float> x, std::span<const float> g, std::int64_t first) override {
    return over_slices(first, x.size(),
                       [&](std::size_t t, std::size_t at, std::size_t from, std::size_t count) {
                         return direct(t, x.subspan(at, count), g.subspan(at, count), from);
                       });
  }

  bool two_passes() const override { return true; }

  // The host hears nothing of lengths on a device, but for shards', which it adds up over ranks: a
  // tensor's step reads its two sums there.
  Status end_pass() override {
    if (there_.kernels == nullptr) return sum_ ? sum_(sums_) : Status();
    return sum_ ? sum_there() : Status();
  }

  Status end_part(std::span<float> x, std::int64_t first) override {
    return over_slices(first, x.size(),
                       [&](std::size_t t, std::size_t at, std::size_t from, std::size_t count) {
                         return move(t, x.subspan(at, count), direction_[0].subspan(from, count));
                       });
  }

  std::vector<NamedTensor> state() override { return state_.named(slices_); }

 private:
  // visit(tensor, place in the part, place in the state, count).
  template <typename Visit>
  Status over_slices(std::int64_t first, std::size_t elems, Visit visit) const {
    return visit_slices(slices_, first, first + static_cast<std::int64_t>(elems),
                        [&](const TensorSlice& slice, std::size_t from, std::size_t count) {
                          return visit(static_cast<std::size_t>(&slice - slices_.data()),
                                       from - static_cast<std::size_t>(first), from, count);
                        });
  }

  static double trust(double x, double u) { return x > 0 && u > 0 ? x / u : 1; }

  // Moments, the direction, and both lengths' squares.
  Status direct(std::size_t t, std::span<const float> x, std::span<const float> g,
                std::size_t from) {
    const AdamFactors& f = factors_;
    const std::span<float> m = state_[0].subspan(from, x.size());
    const std::span<float> v = state_[1].subspan(from, x.size());
    const std::span<float> u = direction_[0].subspan(from, x.size());
    const float decay = slices_[t].decays ? static_cast<float>(options_.weight_decay) : 0.0F;
    if (there_.kernels != nullptr) return direct_there(t, decay, x, m, v, g, u);
    for (std::size_t i = 0; i < x.size(); ++i) {
      adam_moments(f, g[i], m[i], v[i]);
      u[i] = m[i] * f.correct1 / (std::sqrt(v[i] * f.correct2) + f.epsilon) + decay * x[i];
    }
    sums_[2 * t] += sum_of_squares(x);
    sums_[2 * t + 1] += sum_of_squares(u);
    return {};
  }

  Status direct_there(std::size_t t, float decay, std::span<const float> x, std::span<float> m,
                      std::span<float> v, std::span<const float> g, std::span<float> u) {
    const std::span<double> sums = there_.sums.there<double>();
    GW_TRY(there_.kernels->lamb_direction(factors_, decay, x, m, v, g, u));
    GW_TRY(there_.kernels->sum_of_squares(x, sums.subspan(2 * t, 1)));
    return there_.kernels->sum_of_squares(u, sums.subspan(2 * t + 1, 1));
  }

  Status move(std::size_t t, std::span<float> x, std::span<const float> u) {
    if (there_.kernels != nullptr) {
      return there_.kernels->lamb_step(lr_, there_.sums.there<double>().subspan(2 * t, 2), u, x);
    }
    const double ratio = trust(std::sqrt(sums_[2 * t]), std::sqrt(sums_[2 * t + 1]));
    const auto rate = static_cast<float>(lr_ * ratio);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] -= rate * u[i];
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

  OptimizerOptions options_;
  AdamFactors factors_;  // of the step that is being made
  double lr_ = 0;
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
