// What rank 0 tells about a run: progress for people, metrics for programs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/progress.h"
#include "apps/train/metrics.h"
#include "apps/train/train_options.h"
#include "gradwire/status.h"

namespace gradwire {

struct RunEstimate;

class RunReport {
 public:
  // Opens the metrics file, if one is asked for.
  static Result<RunReport> create(const TrainOptions& options);

  // Instead of all else, for a run that trains nothing.
  Status plan(const std::string& headline, std::int64_t steps, const RunEstimate& estimate);
  // Before the first step; prints what is about to run.
  void start(const std::string& headline, std::int64_t steps);
  // Of a run with checkpoints, before start(): `what` it goes on from, after how many steps.
  Status go_on(const std::string& what, std::int64_t steps_done);
  // In the order of steps.
  Status step(const StepRow& row);
  // A step was made whose row is still to come: step() will have its loss.
  void progress(const StepRow& row);
  // Each warning once, on standard error.
  void warn(const std::vector<std::string>& warnings);
  // After a step whose loss is not finite, instead of finish(): the run's metrics are whole.
  Status diverged(RunFacts facts);
  // After the last step; prints the summary.
  Status finish(const RunFacts& facts);

 private:
  explicit RunReport(const TrainOptions& options)
      : quiet_(options.quiet), resumes_(options.resume) {}

  bool quiet_;
  bool resumes_;
  std::optional<MetricsFile> metrics_;
  std::unique_ptr<Progress> progress_;
  std::string says_;        // beside the progress
  std::int64_t shown_ = 0;  // steps that the progress shows
  std::vector<std::string> warned_;
  std::int64_t steps_ = 0;
  double seconds_ = 0;
  std::uint64_t bytes_sent_ = 0;
  std::uint64_t dense_bytes_ = 0;
  std::uint64_t gradient_bytes_ = 0;  // of bytes_sent_
  double loss_ = 0;
  std::int64_t tokens_ = 0;
};

}  // namespace gradwire
