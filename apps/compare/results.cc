#include "apps/compare/results.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace gradwire {
namespace {

using Json = nlohmann::json;

double number(const Json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_number()) return std::numeric_limits<double>::quiet_NaN();
  return found->get<double>();
}

StepMetrics step_of(const Json& line) {
  StepMetrics step;
  step.step = line.value("step", std::int64_t{0});
  step.loss = number(line, "loss");
  if (line.contains("accuracy") && line["accuracy"].is_number())
    step.accuracy = number(line, "accuracy");
  step.bytes_sent = number(line, "bytes_sent");
  step.payload_bytes = number(line, "payload_bytes");
  step.dense_bytes = number(line, "dense_bytes");
  step.step_seconds = number(line, "step_seconds");
  step.compute_seconds = number(line, "compute_seconds");
  step.encode_seconds = number(line, "encode_seconds");
  step.wire_seconds = number(line, "wire_seconds");
  step.decode_seconds = number(line, "decode_seconds");
  step.exposed_seconds = number(line, "exposed_seconds");
  return step;
}

struct Moments {
  double mean = 0;
  double sd = 0;
};
Moments moments(const std::vector<double>& values) {
  Moments m;
  if (values.empty()) return m;
  for (const double v : values) m.mean += v / static_cast<double>(values.size());
  for (const double v : values) m.sd += (v - m.mean) * (v - m.mean);
  m.sd = values.size() < 2 ? 0 : std::sqrt(m.sd / static_cast<double>(values.size() - 1));
  return m;
}

// The mean of one field over the steps of all runs of a row, without each run's first step.
double mean_of(const std::vector<const RunResult*>& runs, double StepMetrics::*field) {
  double sum = 0;
  std::size_t count = 0;
  for (const RunResult* run : runs) {
    for (std::size_t i = run->steps.size() > 1 ? 1 : 0; i < run->steps.size(); ++i) {
      sum += run->steps[i].*field;
      ++count;
    }
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

double last_loss(const std::vector<const RunResult*>& runs) {
  std::vector<double> losses;
  for (const RunResult* run : runs) {
    if (run->diverged) continue;
    const std::size_t begin = run->steps.size() > 10 ? run->steps.size() - 10 : 0;
    for (std::size_t i = begin; i < run->steps.size(); ++i) losses.push_back(run->steps[i].loss);
  }
  return losses.empty() ? std::numeric_limits<double>::quiet_NaN() : moments(losses).mean;
}

RowSummary summary_of(const StudyRow& row, const std::vector<const RunResult*>& runs) {
  RowSummary s{.name = row.name, .compressor = row.compressor, .accuracies = {}};
  s.runs = static_cast<int>(runs.size());
  for (const RunResult* run : runs) {
    s.diverged += run->diverged ? 1 : 0;
    s.accuracies.push_back(run->diverged ? 0.0 : 100 * run->accuracy.value_or(0));
  }
  const Moments accuracy = moments(s.accuracies);
  s.accuracy_mean = accuracy.mean;
  s.accuracy_sd = accuracy.sd;
  s.loss = last_loss(runs);
  s.bytes_per_step = mean_of(runs, &StepMetrics::bytes_sent);
  s.payload_per_step = mean_of(runs, &StepMetrics::payload_bytes);
  s.ratio = s.bytes_per_step > 0 ? mean_of(runs, &StepMetrics::dense_bytes) / s.bytes_per_step : 0;
  s.step_ms = 1e3 * mean_of(runs, &StepMetrics::step_seconds);
  s.compute_ms = 1e3 * mean_of(runs, &StepMetrics::compute_seconds);
  s.encode_ms = 1e3 * mean_of(runs, &StepMetrics::encode_seconds);
  s.wire_ms = 1e3 * mean_of(runs, &StepMetrics::wire_seconds);
  s.decode_ms = 1e3 * mean_of(runs, &StepMetrics::decode_seconds);
  s.exposed_ms = 1e3 * mean_of(runs, &StepMetrics::exposed_seconds);
  return s;
}

std::vector<double> paired(const RowSummary& row, const RowSummary& other) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < std::min(row.accuracies.size(), other.accuracies.size()); ++i) {
    differences.push_back(row.accuracies[i] - other.accuracies[i]);
  }
  return differences;
}

const RowSummary& named(const std::vector<RowSummary>& rows, const std::string& name) {
  return *std::find_if(rows.begin(), rows.end(),
                       [&](const RowSummary& row) { return row.name == name; });
}

}  // namespace

Result<RunResult> read_run(const std::string& metrics_path) {
  std::ifstream file(metrics_path);
  if (!file) return Status(Code::kInvalidArgument, "cannot read metrics (" + metrics_path + ")");
  RunResult run;
  std::string text;
  for (int row = 1; std::getline(file, text); ++row) {
    const Json line = Json::parse(text, nullptr, false);
    if (!line.is_object()) {
      if (file.peek() == std::ifstream::traits_type::eof()) break;  // a killed run's torn last line
      return Status(Code::kInvalidArgument,
                    format("%s, line %d: no JSON object", metrics_path.c_str(), row));
    }
    if (line.value("total", false)) {
      run.complete = true;
      if (line.contains("accuracy") && line["accuracy"].is_number())
        run.accuracy = number(line, "accuracy");
      continue;
    }
    run.steps.push_back(step_of(line));
    run.diverged = run.diverged || !std::isfinite(run.steps.back().loss);
    if (run.steps.back().accuracy) run.accuracy = run.steps.back().accuracy;
  }
  return run;
}

std::vector<RowSummary> summarise(const Study& study, const std::vector<RunResult>& runs) {
  std::vector<RowSummary> rows;
  for (std::size_t r = 0; r < study.rows.size(); ++r) {
    std::vector<const RunResult*> own;
    for (const std::uint64_t seed : study.seeds) {
      for (const RunResult& run : runs) {
        if (run.row == r && run.seed == seed) own.push_back(&run);
      }
    }
    rows.push_back(summary_of(study.rows[r], own));
  }
  const RowSummary baseline = named(rows, study.baseline);
  for (RowSummary& row : rows) {
    const Moments difference = moments(paired(row, baseline));
    row.difference_mean = difference.mean;
    row.difference_sd = difference.sd;
  }
  return rows;
}

std::vector<RuleOutcome> judge(const Study& study, const std::vector<RowSummary>& rows) {
  std::vector<RuleOutcome> outcomes;
  for (const AcceptRule& rule : study.accept) {
    RuleOutcome outcome{.rule = rule};
    const RowSummary& row = named(rows, rule.row);
    outcome.value =
        rule.minus.empty() ? row.accuracy_mean : moments(paired(row, named(rows, rule.minus))).mean;
    outcome.accepted = outcome.value >= rule.at_least && outcome.value <= rule.at_most;
    outcomes.push_back(outcome);
  }
  return outcomes;
}

}  // namespace gradwire
