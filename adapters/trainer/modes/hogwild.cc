#include "adapters/trainer/modes/hogwild.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <string>
#include <thread>

#include "adapters/trainer/modes/mode_state.h"
#include "adapters/trainer/modes/shared_end.h"
#include "adapters/trainer/modes/step_tally.h"
#include "base/check.h"
#include "base/elements.h"
#include "trainer/sgd.h"

namespace gradwire {
namespace {

using SharedFloat = std::atomic_ref<float>;
static_assert(SharedFloat::is_always_lock_free);

// What all threads read and write.
struct Memory {
  std::span<float> params;
  std::vector<float> running;
};

// Moves the shared running statistics by this thread's samples, as if nobody else did.
void follow(GradientSource& source, std::span<float> shared) {
  if (shared.empty()) return;
  hogwild_read(shared, source.running());
  source.commit();
  for (std::size_t i = 0; i < shared.size(); ++i) {
    SharedFloat(shared[i]).store(source.running()[i], std::memory_order_relaxed);
  }
}

// One thread's steps from `begin` to the shared end.
Status train(GradientSource& source, const ModeOptions& options, Memory& memory,
             std::vector<float>& direction, std::int64_t begin, SharedEnd& end, StepTally& tally) {
  std::vector<float> seen(memory.params.size());
  std::vector<float> gradient(memory.params.size());
  for (std::int64_t t = begin; t < end.grant(t + 1); ++t) {
    hogwild_read(memory.params, seen);
    GW_ASSIGN(const double loss, source.gradient(seen, t, gradient));
    follow(source, memory.running);
    const auto lr = static_cast<float>(options.rate(t));
    if (!direction.empty()) {
      add_momentum(direction, gradient, static_cast<float>(options.momentum));
    }
    hogwild_descend(memory.params, direction.empty() ? gradient : direction, lr);
    GW_TRY(tally.add({&loss, 1}));
  }
  return {};
}

}  // namespace

void hogwild_descend(std::span<float> shared, std::span<const float> d, float lr) {
  GW_CHECK(shared.size() == d.size());
  for (std::size_t i = 0; i < d.size(); ++i) {
    if (d[i] == 0) continue;
    const SharedFloat x(shared[i]);
    x.store(x.load(std::memory_order_relaxed) - lr * d[i], std::memory_order_relaxed);
  }
}

void hogwild_read(std::span<float> shared, std::span<float> out) {
  GW_CHECK(shared.size() == out.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = SharedFloat(shared[i]).load(std::memory_order_relaxed);
  }
}

Status run_hogwild(std::span<GradientSource* const> sources, const ModeOptions& options,
                   std::span<float> params, std::span<float> running, const OnModeStep& on_step) {
  Memory memory{params, {running.begin(), running.end()}};
  std::vector<float> copy(params.size());
  StepTally tally(options, static_cast<int>(sources.size()), on_step, [&] {
    hogwild_read(params, copy);
    hogwild_read(memory.running, running);
    return std::span<const float>(copy);
  });
  std::vector<std::vector<float>> directions(
      sources.size(), std::vector<float>(options.momentum > 0 ? params.size() : 0));
  const auto parts = [&] {
    ModeParts all;
    add_model(all, sources.front()->parameters(), params, true);
    for (std::size_t i = 0; i < directions.size(); ++i) {
      add_own(all, 0, "direction-" + std::to_string(i), directions[i]);
    }
    if (!memory.running.empty()) {
      const TensorView view = view_of(std::span(memory.running));
      all.push_back({"buffers/running", view.shape(), 0, view, true});
    }
    return all;
  };
  ModeCheckpoints checkpoints(options);
  GW_ASSIGN(std::int64_t t, checkpoints.restore(parts()));
  tally.continue_from(t);
  while (t < options.steps) {
    SharedEnd end(options.interruption, t + 1, checkpoints.next(options.steps), 0);
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < sources.size(); ++i) {
        threads.emplace_back([&, i] {
          const Status status = train(*sources[i], options, memory, directions[i], t, end, tally);
          if (!status.ok()) tally.fail(status);
        });
      }
    }
    GW_TRY(tally.error());
    t = end.end();
    if (options.interruption != nullptr) {
      options.interruption->hear(options.interruption->asked());
    }
    GW_TRY(checkpoints.after(t, parts));
  }
  std::ranges::copy(memory.running, running.begin());
  return tally.error();
}

}  // namespace gradwire
