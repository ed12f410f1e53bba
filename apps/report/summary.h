// The statistics of a case over its seeds, and what was expected of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/report/noise.h"
#include "apps/report/results.h"

namespace gradwire {

Spread spread_of(const std::vector<double>& values);

// Of one case, over the seeds that have a result. Bytes are of rank 0; bytes and seconds per step
// are means over all steps but each run's first (which warms up).
struct CaseSummary {
  std::string setting;
  std::string name;
  std::string compressor;
  std::string lab;
  // Of a model in stages, "" and none elsewhere: how its ranks are divided ("dp=1,pp=2/gpipe"), the
  // schedule's simulated idle share of a step, 0 to 1, and exposed_ms' wait for other stages.
  std::string parallel = {};
  std::optional<double> bubble = {};
  std::optional<double> stage_wait_ms = {};
  bool is_baseline = false;
  int runs = 0;
  int diverged = 0;
  // By seed. A diverged run has an accuracy of 0 % and infinite losses.
  std::map<std::uint64_t, double> accuracies;  // percent, of the test set, after the last step
  std::map<std::uint64_t, double> losses;      // mean of the last ten training losses
  std::map<std::uint64_t, double> test_losses;
  Spread accuracy = {};
  bool is_text = false;         // a language model: its test loss is said first
  Spread perplexity = {};       // of the seeds whose test losses are finite
  Spread loss_difference = {};  // of test losses to the baseline's, paired by seed
  Spread difference = {};       // to the baseline of the setting, paired by seed, percent points
  std::optional<double> noise = {};  // half of the difference's 95 % interval, percent points
  Verdict verdict = Verdict::kNone;  // on the difference
  std::optional<std::int64_t> test_samples = {};  // that accuracies are shares of
  Spread final_loss = {};                         // of the seeds whose losses are finite
  Spread final_test_loss = {};
  std::optional<double> loss;                           // over the runs that did not diverge
  std::optional<double> test_loss;                      // the same
  double bytes_per_step = 0;                            // sent at the transport
  std::map<std::string, double> traffic_per_step = {};  // of bytes_per_step, by class of traffic
  double payload_per_step = 0;
  double total_bytes = 0;               // of a run, mean
  double ratio = 0;                     // bytes of an fp32 ring / bytes sent; 0: nothing was sent
  std::optional<double> ratio_to_bf16;  // bytes of the setting's cast:bf16 case / bytes sent
  double step_ms = 0;
  double compute_ms = 0;
  double encode_ms = 0;
  double wire_ms = 0;
  double decode_ms = 0;
  double exposed_ms = 0;
  // Encoding, sending and decoding while the backward pass computes: a part of compute_ms.
  double hidden_ms = 0;
  double other_ms = 0;  // of the step, beside compute_ms and exposed_ms: the optimizer above all
  // Over the seeds, of each run's mean.
  Spread sent = {};  // bytes_per_step
  Spread step = {};  // step_ms
  Spread compute = {};
  Spread exposed = {};
  Spread hidden = {};
  std::optional<double> nmse;      // mean over the steps where it was measured
  std::optional<double> residual;  // residual norm / gradient norm, over their last half
  // Seconds of training until the test accuracy first was at least the target. Over the seeds that
  // got there.
  std::optional<double> target;  // percent
  Spread seconds_to_target = {};
  bool evaluated_once = false;  // at the end only: the seconds are those of the whole run
  // No other case of the setting sends fewer bytes without an accuracy that is lower by more than
  // noise, or is more accurate by more than noise with no more bytes.
  bool on_front = false;
};

// One per case of the plan. Targets: the plan's, else one point below the setting's baseline.
std::vector<CaseSummary> summarise(const Results& results);

struct RuleOutcome {
  AcceptRule rule;
  std::string setting;  // that it was held against; "" where there is one only
  double value = 0;     // NaN where a row has no result
  bool accepted = false;
};
// A rule without a setting is held against every setting that has its rows.
std::vector<RuleOutcome> judge(const StudyPlan& plan, const std::vector<CaseSummary>& cases);

}  // namespace gradwire
