// The metrics that one run wrote (docs/metrics.md), read back.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/sweep/run_record.h"
#include "gradwire/status.h"

namespace gradwire {

// One line; bytes are of rank 0.
struct StepMetrics {
  std::int64_t step = 0;
  double loss = 0;  // NaN when the run had diverged
  double lr = 0;
  std::optional<double> accuracy = {};    // of the test set, 0 to 1
  std::optional<double> test_loss = {};   // there
  std::optional<double> perplexity = {};  // there, of a text
  double bytes_sent = 0;
  std::map<std::string, double> traffic = {};  // bytes_sent by class; empty where it is not known
  double payload_bytes = 0;
  double dense_bytes = 0;
  double step_seconds = 0;
  double compute_seconds = 0;
  double encode_seconds = 0;
  double wire_seconds = 0;
  double decode_seconds = 0;
  double exposed_seconds = 0;
  std::optional<double> stage_wait_seconds = {};  // of it, for other stages; where there are
  std::optional<double> nmse = {};                // where it was measured, as the next two
  std::optional<double> exact_norm = {};
  std::optional<double> residual_norm = {};
};

struct RunMetrics {
  bool complete = false;  // the totals are there: it ran to its last step, or its loss was not
                          // finite
  bool diverged = false;  // a loss that is not finite
  bool torn = false;      // the last line is cut off
  std::vector<StepMetrics> steps;
  std::optional<double> accuracy;  // the last ones
  std::optional<double> test_loss;
  bool is_text = false;           // a language model: it has a perplexity
  nlohmann::ordered_json totals;  // the last line; null where it is missing
};

// A torn last line, as a killed run leaves it, is passed over. kInvalidArgument names file and
// line.
Result<RunMetrics> read_metrics(const std::string& path);

// Of a run that ended and is a result: all that it wrote. kInvalidArgument names the file and what
// it lacks.
Result<RunMetrics> read_whole_metrics(const std::string& folder, const RunRecord& record);

}  // namespace gradwire
