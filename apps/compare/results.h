// What the runs of a comparison measured, and the statistics of a row over its seeds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/compare/study.h"
#include "gradwire/status.h"

namespace gradwire {

// One line of a run's metrics; bytes are of rank 0.
struct StepMetrics {
  std::int64_t step = 0;
  double loss = 0;  // NaN when the run had diverged
  std::optional<double> accuracy;
  double bytes_sent = 0;
  double payload_bytes = 0;
  double dense_bytes = 0;
  double step_seconds = 0;
  double compute_seconds = 0;
  double encode_seconds = 0;
  double wire_seconds = 0;
  double decode_seconds = 0;
  double exposed_seconds = 0;
};

struct RunResult {
  std::size_t row = 0;
  std::uint64_t seed = 0;
  bool complete = false;  // ran to its last step
  bool diverged = false;  // a loss or gradient that is not finite
  std::string reason;     // of a run that is not complete
  std::vector<StepMetrics> steps;
  std::optional<double> accuracy;  // of the test set after the last step, 0 to 1
};

// Reads a run's metrics file. `complete` says whether its last line holds the totals.
Result<RunResult> read_run(const std::string& metrics_path);

// Over the seeds of one row. Seconds are means per step over all steps but the first (which warms
// up).
struct RowSummary {
  std::string name;
  std::string compressor;
  int runs = 0;
  int diverged = 0;
  std::vector<double> accuracies;  // percent, in the order of seeds; 0 for a diverged run
  double accuracy_mean = 0;
  double accuracy_sd = 0;      // sample standard deviation; 0 for one seed
  double difference_mean = 0;  // to the baseline, paired by seed, percent
  double difference_sd = 0;
  double loss = 0;            // mean of the last 10 steps, over the runs that did not diverge
  double bytes_per_step = 0;  // sent at the transport, rank 0, from the second step on
  double payload_per_step = 0;
  double ratio = 0;  // bytes of an fp32 ring / bytes sent
  double step_ms = 0;
  double compute_ms = 0;
  double encode_ms = 0;
  double wire_ms = 0;
  double decode_ms = 0;
  double exposed_ms = 0;
};
std::vector<RowSummary> summarise(const Study& study, const std::vector<RunResult>& runs);

struct RuleOutcome {
  AcceptRule rule;
  double value = 0;
  bool accepted = false;
};
std::vector<RuleOutcome> judge(const Study& study, const std::vector<RowSummary>& rows);

}  // namespace gradwire
