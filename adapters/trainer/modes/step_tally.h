// Steps of workers that do not wait for each other, in the order in which a server hears of them.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <span>

#include "adapters/trainer/modes/mode.h"

namespace gradwire {

// Thread-safe. Each so many steps as there are workers, of whichever, are told as one.
class StepTally {
 public:
  // `model`: copies the model as it is; called where on_step is, null: there is none.
  StepTally(const ModeOptions& options, int workers, const OnModeStep& on_step,
            std::function<std::span<const float>()> model)
      : options_(options), workers_(workers), on_step_(on_step), model_(std::move(model)) {}

  // Of a run that goes on: each worker has done so many steps. Before the first add().
  void continue_from(std::int64_t steps) { heard_ = steps * workers_; }
  Status add(std::span<const double> losses);
  // The first error, of add() or said here, is what add() returns from then on.
  void fail(const Status& error);
  Status error();

 private:
  const ModeOptions& options_;
  const std::int64_t workers_;
  const OnModeStep& on_step_;
  const std::function<std::span<const float>()> model_;
  std::mutex mutex_;
  std::int64_t heard_ = 0;
  double losses_ = 0;
  Status error_;
};

}  // namespace gradwire
