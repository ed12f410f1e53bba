// How far a comparison is, over all its runs.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "apps/progress.h"

namespace gradwire {

class RunProgress {
 public:
  RunProgress(std::size_t runs, bool quiet);
  void steps_known(std::size_t steps_per_run) { steps_per_run_ = steps_per_run; }
  void run_done() { ++done_; }
  // `metrics`: the files that the running children append a line a step to. Looks at most twice a
  // second.
  void show(const std::vector<std::string>& metrics, const std::string& what);
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  std::size_t runs_;
  Progress progress_;  // counts thousandths of runs
  std::size_t done_ = 0;
  std::size_t steps_per_run_ = 0;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
};

}  // namespace gradwire
