// How far a sweep is, over all its runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "apps/progress.h"

namespace gradwire {

// Counts training steps, so that long runs weigh more than short ones. Not thread-safe.
class RunProgress {
 public:
  // steps: of every run that is to be done.
  RunProgress(const std::string& label, std::vector<std::int64_t> steps, bool quiet);

  void run_ended(std::size_t run);
  // `running`: runs and the metrics files that they append a line a step to. Looks at most twice a
  // second.
  struct Followed {
    std::size_t run;
    std::string metrics;
  };
  void show(const std::vector<Followed>& running, const std::string& what);
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  // What has been read of a growing file.
  struct Tail {
    std::int64_t bytes = 0;
    std::int64_t lines = 0;
  };
  std::int64_t lines_of(const std::string& path);

  std::vector<std::int64_t> steps_;
  std::int64_t total_;
  Progress progress_;
  std::size_t ended_ = 0;
  std::int64_t done_ = 0;  // steps of runs that have ended
  std::map<std::string, Tail> tails_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
};

}  // namespace gradwire
