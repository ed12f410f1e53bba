#include "apps/train/mode_rows.h"

#include <algorithm>
#include <cmath>

#include "adapters/trainer/divergence.h"
#include "adapters/trainer/modes/losses.h"

namespace gradwire {

void ModeRows::start(const RunFacts& facts) {
  facts_ = facts;
  last_ = std::chrono::steady_clock::now();
  if (communicator_ != nullptr) bytes_sent_ = communicator_->transport_stats().bytes_sent;
}

Status ModeRows::step(const ModeStep& step) {
  if (options_.eval_every > 0 && (step.step + 1) % options_.eval_every == 0) due_ = true;
  StepRow row;
  if (due_ && !step.params.empty()) {
    due_ = false;
    GW_ASSIGN(row.accuracy, evaluate(step.params, step.together));
  }
  const Status finite = check_loss("loss", step.step, step.loss).with_context("train");
  if (report_ == nullptr) return finite;
  row.step = step.step;
  row.loss = step.loss;
  row.lr = step.lr;
  if (communicator_ != nullptr) {
    const std::uint64_t sent = communicator_->transport_stats().bytes_sent;
    row.bytes_sent = sent - bytes_sent_;
    bytes_sent_ = sent;
  }
  row.dense_bytes = dense_bytes_;
  const auto now = std::chrono::steady_clock::now();
  row.step_seconds = std::chrono::duration<double>(now - last_).count();
  last_ = now;
  row.compute_seconds = step.compute_seconds;
  row.exposed_seconds = std::max(0.0, row.step_seconds - step.compute_seconds);
  GW_TRY(report_->step(row));
  if (!finite.ok()) GW_TRY(report_->diverged(facts_));
  return finite;
}

Result<double> ModeRows::evaluate(std::span<const float> params, bool together) {
  const auto all = static_cast<double>(std::max<std::int64_t>(test_samples_, 1));
  if (!together || communicator_ == nullptr) {
    return static_cast<double>(evaluator_.count_right(params, 0, 1)) / all;
  }
  const int size = communicator_->size();
  auto mean = static_cast<double>(evaluator_.count_right(params, communicator_->rank(), size));
  GW_TRY(average_over_ranks(*communicator_, {&mean, 1}));
  // Counts are whole numbers: rounding undoes the mean's rounding.
  return static_cast<double>(std::llround(mean * size)) / all;
}

}  // namespace gradwire
