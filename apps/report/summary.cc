#include "apps/report/summary.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace gradwire {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kLastLosses = 10;

using Runs = std::vector<const RunResult*>;

std::vector<double> values_of(const std::map<std::uint64_t, double>& by_seed, bool finite_only) {
  std::vector<double> values;
  for (const auto& [seed, value] : by_seed) {
    if (!finite_only || std::isfinite(value)) values.push_back(value);
  }
  return values;
}

std::optional<double> mean_or_none(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  return spread_of(values).mean;
}

// The mean over the steps of all runs, without each run's first step.
template <typename Value>
double mean_of(const Runs& runs, Value value) {
  double sum = 0;
  std::size_t count = 0;
  for (const RunResult* run : runs) {
    const auto& steps = run->metrics.steps;
    for (std::size_t i = steps.size() > 1 ? 1 : 0; i < steps.size(); ++i) {
      sum += std::invoke(value, steps[i]);
      ++count;
    }
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

// The same of each class of traffic; a class that is not in a step sent nothing in it.
std::map<std::string, double> traffic_per_step(const Runs& runs) {
  std::map<std::string, double> means;
  for (const RunResult* run : runs) {
    for (const StepMetrics& step : run->metrics.steps) {
      for (const auto& [name, bytes] : step.traffic) means[name] = 0;
    }
  }
  for (auto& [name, mean] : means) {
    mean = mean_of(runs, [&key = name](const StepMetrics& step) {
      const auto found = step.traffic.find(key);
      return found == step.traffic.end() ? 0.0 : found->second;
    });
  }
  return means;
}

// The same of each run.
template <typename Value>
Spread spread_by_seed(const Runs& runs, Value value, double unit) {
  std::vector<double> means;
  for (const RunResult* run : runs) means.push_back(unit * mean_of({run}, value));
  return spread_of(means);
}

double hidden_seconds(const StepMetrics& step) {
  const double communication = step.encode_seconds + step.wire_seconds + step.decode_seconds;
  const double exposed = step.exposed_seconds - step.stage_wait_seconds.value_or(0);
  return std::clamp(communication - exposed, 0.0, std::max(step.compute_seconds, 0.0));
}

double other_seconds(const StepMetrics& step) {
  return std::max(step.step_seconds - step.compute_seconds - step.exposed_seconds, 0.0);
}

double total_bytes(const Runs& runs) {
  double sum = 0;
  for (const RunResult* run : runs) {
    for (const StepMetrics& step : run->metrics.steps) sum += step.bytes_sent;
  }
  return runs.empty() ? 0 : sum / static_cast<double>(runs.size());
}

double last_loss(const RunResult& run) {
  if (run.diverged()) return kInfinity;
  std::vector<double> losses;
  const auto& steps = run.metrics.steps;
  for (std::size_t i = steps.size() > kLastLosses ? steps.size() - kLastLosses : 0;
       i < steps.size(); ++i)
    losses.push_back(steps[i].loss);
  return losses.empty() ? kInfinity : spread_of(losses).mean;
}

// A field where it was measured, over all runs; of each run's measurements from `from` of them on.
std::optional<double> measured(const Runs& runs, double from,
                               std::optional<double> (*value)(const StepMetrics&)) {
  std::vector<double> all;
  for (const RunResult* run : runs) {
    std::vector<double> own;
    for (const StepMetrics& step : run->metrics.steps) {
      const auto one = value(step);
      if (one && std::isfinite(*one)) own.push_back(*one);
    }
    const auto skip = static_cast<std::ptrdiff_t>(from * static_cast<double>(own.size()));
    all.insert(all.end(), own.begin() + skip, own.end());
  }
  return mean_or_none(all);
}

// Runs of before this was written have none.
std::optional<std::int64_t> test_samples_of(const Runs& runs) {
  for (const RunResult* run : runs) {
    const auto found = run->metrics.totals.find("test_samples");
    if (found != run->metrics.totals.end() && found->is_number_integer())
      return found->get<std::int64_t>();
  }
  return std::nullopt;
}

// What the totals of runs of stages say of these.
void add_stages(const Runs& runs, CaseSummary& summary) {
  for (const RunResult* run : runs) {
    const auto& totals = run->metrics.totals;
    const auto parallel = totals.find("parallel");
    const auto bubble = totals.find("bubble");
    if (parallel != totals.end() && parallel->is_string()) summary.parallel = *parallel;
    if (bubble != totals.end() && bubble->is_number()) summary.bubble = bubble->get<double>();
  }
  if (summary.parallel.empty()) return;
  summary.stage_wait_ms = 1e3 * mean_of(runs, [](const StepMetrics& step) {
                            return step.stage_wait_seconds.value_or(0);
                          });
}

CaseSummary summary_of(const StudyCase& one, bool is_baseline, const Runs& runs) {
  CaseSummary s{.setting = one.setting,
                .name = one.row,
                .compressor = one.compressor,
                .lab = one.lab,
                .is_baseline = is_baseline,
                .runs = static_cast<int>(runs.size()),
                .accuracies = {},
                .losses = {},
                .test_losses = {},
                .loss = {},
                .test_loss = {},
                .ratio_to_bf16 = {},
                .nmse = {},
                .residual = {},
                .target = {}};
  for (const RunResult* run : runs) {
    s.diverged += run->diverged() ? 1 : 0;
    s.accuracies[run->seed] = run->diverged() ? 0.0 : 100 * run->metrics.accuracy.value_or(0);
    s.losses[run->seed] = last_loss(*run);
    s.is_text = s.is_text || run->metrics.is_text;
    if (run->diverged()) s.test_losses[run->seed] = kInfinity;
    if (!run->diverged() && run->metrics.test_loss)
      s.test_losses[run->seed] = *run->metrics.test_loss;
  }
  s.accuracy = spread_of(values_of(s.accuracies, false));
  s.final_loss = spread_of(values_of(s.losses, true));
  s.final_test_loss = spread_of(values_of(s.test_losses, true));
  std::vector<double> perplexities = values_of(s.test_losses, true);
  for (double& value : perplexities) value = std::exp(value);
  if (s.is_text) s.perplexity = spread_of(perplexities);
  s.loss = mean_or_none(values_of(s.losses, true));
  s.test_loss = mean_or_none(values_of(s.test_losses, true));
  s.test_samples = test_samples_of(runs);
  s.bytes_per_step = mean_of(runs, &StepMetrics::bytes_sent);
  s.traffic_per_step = traffic_per_step(runs);
  s.payload_per_step = mean_of(runs, &StepMetrics::payload_bytes);
  s.total_bytes = total_bytes(runs);
  s.ratio = s.bytes_per_step > 0 ? mean_of(runs, &StepMetrics::dense_bytes) / s.bytes_per_step : 0;
  add_stages(runs, s);
  s.step_ms = 1e3 * mean_of(runs, &StepMetrics::step_seconds);
  s.compute_ms = 1e3 * mean_of(runs, &StepMetrics::compute_seconds);
  s.encode_ms = 1e3 * mean_of(runs, &StepMetrics::encode_seconds);
  s.wire_ms = 1e3 * mean_of(runs, &StepMetrics::wire_seconds);
  s.decode_ms = 1e3 * mean_of(runs, &StepMetrics::decode_seconds);
  s.exposed_ms = 1e3 * mean_of(runs, &StepMetrics::exposed_seconds);
  s.hidden_ms = 1e3 * mean_of(runs, hidden_seconds);
  s.other_ms = 1e3 * mean_of(runs, other_seconds);
  s.sent = spread_by_seed(runs, &StepMetrics::bytes_sent, 1);
  s.step = spread_by_seed(runs, &StepMetrics::step_seconds, 1e3);
  s.compute = spread_by_seed(runs, &StepMetrics::compute_seconds, 1e3);
  s.exposed = spread_by_seed(runs, &StepMetrics::exposed_seconds, 1e3);
  s.hidden = spread_by_seed(runs, hidden_seconds, 1e3);
  s.nmse = measured(runs, 0, [](const StepMetrics& step) { return step.nmse; });
  s.residual = measured(runs, 0.5, [](const StepMetrics& step) -> std::optional<double> {
    if (!step.residual_norm || step.exact_norm.value_or(0) <= 0) return std::nullopt;
    return *step.residual_norm / *step.exact_norm;
  });
  return s;
}

std::vector<double> paired(const std::map<std::uint64_t, double>& row,
                           const std::map<std::uint64_t, double>& other) {
  std::vector<double> differences;
  for (const auto& [seed, value] : row) {
    const auto found = other.find(seed);
    if (found != other.end()) differences.push_back(value - found->second);
  }
  return differences;
}

const CaseSummary* find(const std::vector<CaseSummary>& cases, const std::string& setting,
                        const std::string& name) {
  for (const CaseSummary& one : cases) {
    if (one.setting == setting && one.name == name) return &one;
  }
  return nullptr;
}

void find_seconds_to_target(const Runs& runs, CaseSummary& summary) {
  std::vector<double> times;
  std::size_t most_evaluations = 0;
  for (const RunResult* run : runs) {
    double seconds = 0;
    std::size_t evaluations = 0;
    bool reached = false;
    for (const StepMetrics& step : run->metrics.steps) {
      seconds += step.step_seconds;
      evaluations += step.accuracy ? 1 : 0;
      if (reached || !step.accuracy || !summary.target) continue;
      if (100 * *step.accuracy < *summary.target) continue;
      reached = true;
      times.push_back(seconds);
    }
    most_evaluations = std::max(most_evaluations, evaluations);
  }
  summary.evaluated_once = most_evaluations < 2;
  summary.seconds_to_target = spread_of(times);
}

// Half of the 95 % interval of the difference between two cases; 0 where nothing is known of it.
double noise_between(const CaseSummary& one, const CaseSummary& other) {
  return noise_of(spread_of(paired(one.accuracies, other.accuracies)), one.accuracy.mean,
                  other.accuracy.mean, one.test_samples)
      .value_or(0);
}

// Fewer bytes beat unless the accuracy is lower by more than noise, more accuracy than noise
// explains beats with no more bytes; runs that diverged are beaten by all.
void find_front(std::vector<CaseSummary>& cases) {
  const auto in_race = [](const CaseSummary& one) {
    return one.runs > 0 && one.diverged == 0 && one.bytes_per_step > 0;
  };
  for (CaseSummary& one : cases) {
    one.on_front = in_race(one);
    for (const CaseSummary& other : cases) {
      if (&other == &one || other.setting != one.setting || !in_race(other)) continue;
      const double lead = other.accuracy.mean - one.accuracy.mean;
      const double noise = noise_between(other, one);
      const bool cheaper = other.bytes_per_step < one.bytes_per_step && lead >= -noise;
      const bool better = other.bytes_per_step <= one.bytes_per_step && lead > noise;
      if (cheaper || better) one.on_front = false;
    }
  }
}

void compare_with_baselines(std::vector<CaseSummary>& cases, const std::string& baseline) {
  for (CaseSummary& one : cases) {
    if (const CaseSummary* base = find(cases, one.setting, baseline); base != nullptr) {
      one.difference = spread_of(paired(one.accuracies, base->accuracies));
      if (one.diverged + base->diverged == 0)
        one.loss_difference = spread_of(paired(one.test_losses, base->test_losses));
      one.noise =
          noise_of(one.difference, one.accuracy.mean, base->accuracy.mean, one.test_samples);
      if (base != &one) one.verdict = verdict_of(one.difference, one.noise);
    }
    for (const CaseSummary& other : cases) {
      const bool is_bf16 = other.setting == one.setting && other.compressor == "cast:bf16";
      if (is_bf16 && other.bytes_per_step > 0 && one.bytes_per_step > 0)
        one.ratio_to_bf16 = other.bytes_per_step / one.bytes_per_step;
    }
  }
}

RuleOutcome outcome_of(const AcceptRule& rule, const CaseSummary& row, const CaseSummary* minus) {
  const auto by_seed = rule.metric == "loss"        ? &CaseSummary::losses
                       : rule.metric == "test_loss" ? &CaseSummary::test_losses
                                                    : &CaseSummary::accuracies;
  const std::vector<double> values =
      minus == nullptr ? values_of(row.*by_seed, false) : paired(row.*by_seed, minus->*by_seed);
  RuleOutcome outcome{.rule = rule, .setting = row.setting};
  outcome.value =
      values.empty() ? std::numeric_limits<double>::quiet_NaN() : spread_of(values).mean;
  outcome.accepted = outcome.value >= rule.at_least && outcome.value <= rule.at_most;
  return outcome;
}

}  // namespace

Spread spread_of(const std::vector<double>& values) {
  Spread s{.count = values.size()};
  if (values.empty()) return s;
  const auto n = static_cast<double>(values.size());
  for (const double v : values) s.mean += v / n;
  for (const double v : values) s.sd += (v - s.mean) * (v - s.mean);
  s.sd = values.size() < 2 ? 0 : std::sqrt(s.sd / (n - 1));
  s.least = *std::min_element(values.begin(), values.end());
  s.most = *std::max_element(values.begin(), values.end());
  return s;
}

std::vector<CaseSummary> summarise(const Results& results) {
  const StudyPlan& plan = results.plan();
  std::vector<CaseSummary> cases;
  for (std::size_t i = 0; i < plan.cases.size(); ++i) {
    const StudyCase& one = plan.cases[i];
    cases.push_back(summary_of(one, one.row == plan.baseline, runs_of(results, i)));
  }
  compare_with_baselines(cases, plan.baseline);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const CaseSummary* base = find(cases, cases[i].setting, plan.baseline);
    cases[i].target = plan.target;
    if (!plan.target && base != nullptr && base->runs > base->diverged)
      cases[i].target = base->accuracy.mean - 1;
    find_seconds_to_target(runs_of(results, i), cases[i]);
  }
  find_front(cases);
  return cases;
}

std::vector<RuleOutcome> judge(const StudyPlan& plan, const std::vector<CaseSummary>& cases) {
  std::vector<RuleOutcome> outcomes;
  for (const AcceptRule& rule : plan.accept) {
    for (const std::string& setting : settings_of(plan)) {
      if (!rule.setting.empty() && rule.setting != setting) continue;
      const CaseSummary* row = find(cases, setting, rule.row);
      const CaseSummary* minus = rule.minus.empty() ? nullptr : find(cases, setting, rule.minus);
      if (row == nullptr || (minus == nullptr && !rule.minus.empty())) continue;
      outcomes.push_back(outcome_of(rule, *row, minus));
    }
  }
  return outcomes;
}

}  // namespace gradwire
