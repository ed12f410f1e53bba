#include "adapters/trainer/modes/hogwild.h"

#include <atomic>
#include <cstddef>
#include <thread>

#include "adapters/trainer/modes/step_tally.h"
#include "base/check.h"
#include "trainer/sgd.h"

namespace gradwire {
namespace {

using Shared = std::atomic_ref<float>;
static_assert(Shared::is_always_lock_free);

Status train(GradientSource& source, const ModeOptions& options, std::span<float> shared,
             StepTally& tally) {
  std::vector<float> seen(shared.size());
  std::vector<float> gradient(shared.size());
  std::vector<float> direction(options.momentum > 0 ? shared.size() : 0);
  for (std::int64_t t = 0; t < options.steps; ++t) {
    hogwild_read(shared, seen);
    GW_ASSIGN(const double loss, source.gradient(seen, t, gradient));
    const auto lr = static_cast<float>(options.rate(t));
    if (!direction.empty()) {
      add_momentum(direction, gradient, static_cast<float>(options.momentum));
    }
    hogwild_descend(shared, direction.empty() ? gradient : direction, lr);
    GW_TRY(tally.add({&loss, 1}));
  }
  return {};
}

}  // namespace

void hogwild_descend(std::span<float> shared, std::span<const float> d, float lr) {
  GW_CHECK(shared.size() == d.size());
  for (std::size_t i = 0; i < d.size(); ++i) {
    if (d[i] == 0) continue;
    const Shared x(shared[i]);
    x.store(x.load(std::memory_order_relaxed) - lr * d[i], std::memory_order_relaxed);
  }
}

void hogwild_read(std::span<float> shared, std::span<float> out) {
  GW_CHECK(shared.size() == out.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = Shared(shared[i]).load(std::memory_order_relaxed);
  }
}

Status run_hogwild(std::span<GradientSource* const> sources, const ModeOptions& options,
                   std::span<float> params, const OnModeStep& on_step) {
  std::vector<float> copy(params.size());
  StepTally tally(options, static_cast<int>(sources.size()), on_step, [&] {
    hogwild_read(params, copy);
    return std::span<const float>(copy);
  });
  {
    std::vector<std::jthread> threads;
    for (GradientSource* source : sources) {
      threads.emplace_back([&, source] {
        const Status status = train(*source, options, params, tally);
        if (!status.ok()) tally.fail(status);
      });
    }
  }
  return tally.error();
}

}  // namespace gradwire
