#include "apps/train/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "apps/train/run_estimate.h"
#include "base/text.h"

namespace gradwire {
namespace {

// In powers of ten, as in the tables of compare.
std::string amount(double bytes) {
  const char* units[] = {"B", "kB", "MB", "GB"};
  int unit = 0;
  for (; bytes >= 1000 && unit < 3; ++unit) bytes /= 1000;
  return format(unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
}

}  // namespace

Result<RunReport> RunReport::create(const TrainOptions& options) {
  RunReport report(options);
  if (!options.metrics.empty()) {
    GW_ASSIGN(report.metrics_, options.resume ? MetricsFile::append(options.metrics)
                                              : MetricsFile::create(options.metrics));
  }
  return report;
}

Status RunReport::plan(const std::string& headline, std::int64_t steps,
                       const RunEstimate& estimate) {
  if (!quiet_) {
    std::printf("%s (dry run)\nmemory: %s\n", headline.c_str(), to_text(estimate).c_str());
  }
  return metrics_ ? metrics_->write_plan(steps, estimate.parameters, estimate.total()) : Status();
}

void RunReport::start(const std::string& headline, std::int64_t steps) {
  if (quiet_) return;
  std::printf("%s\n", headline.c_str());
  std::fflush(stdout);
  if (steps > 0) {
    progress_ = std::make_unique<Progress>(stdout, Progress::style_for(stdout), "step", steps);
  }
}

Status RunReport::go_on(const std::string& what, std::int64_t steps_done) {
  if (!quiet_) std::printf("%s\n", what.c_str());
  std::fflush(stdout);
  return metrics_ && resumes_ ? metrics_->keep(steps_done) : Status();
}

void RunReport::progress(const StepRow& row) {
  if (progress_ == nullptr) return;
  shown_ = std::max(shown_, row.step + 1);
  progress_->update(shown_, says_);
}

Status RunReport::step(const StepRow& row) {
  ++steps_;
  seconds_ += row.step_seconds;
  bytes_sent_ += row.bytes_sent;
  dense_bytes_ += row.dense_bytes;
  gradient_bytes_ += row.traffic[static_cast<std::size_t>(TrafficClass::kGradients)];
  loss_ = row.loss;
  tokens_ += row.tokens;
  if (progress_ != nullptr) {
    says_ =
        format("loss %.4f  %.2f ms/step", row.loss, 1e3 * seconds_ / static_cast<double>(steps_));
    if (row.test_loss && row.tokens > 0) {
      says_ +=
          format("  test loss %.4f, perplexity %.4g", *row.test_loss, std::exp(*row.test_loss));
    }
    if (row.accuracy) says_ += format("  test accuracy %.2f %%", 100 * *row.accuracy);
  }
  progress(row);
  return metrics_ ? metrics_->write(row) : Status();
}

void RunReport::warn(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    if (std::find(warned_.begin(), warned_.end(), warning) != warned_.end()) continue;
    warned_.push_back(warning);
    std::fprintf(stderr, "gradwire: warning: %s\n", warning.c_str());
  }
}

Status RunReport::diverged(RunFacts facts) {
  progress_.reset();
  facts.diverged = true;
  return metrics_ ? metrics_->write_totals(facts) : Status();
}

Status RunReport::finish(const RunFacts& facts) {
  progress_.reset();
  if (metrics_) GW_TRY(metrics_->write_totals(facts));
  if (quiet_) return {};
  std::string text = format("test accuracy %.2f %%", 100 * facts.accuracy);
  if (facts.test_loss && facts.is_text) {
    text =
        format("test loss %.4f, perplexity %.4g, ", *facts.test_loss, std::exp(*facts.test_loss)) +
        text;
  } else if (facts.test_loss) {
    text += format(", test loss %.4f", *facts.test_loss);
  }
  if (steps_ > 0) {
    const auto steps = static_cast<double>(steps_);
    text +=
        format(", last loss %.4f, %.2f ms per step, %s sent per rank and step", loss_,
               1e3 * seconds_ / steps, amount(static_cast<double>(bytes_sent_) / steps).c_str());
    if (tokens_ > 0 && seconds_ > 0) {
      text += format(", %.0f tokens per second", static_cast<double>(tokens_) / seconds_);
    }
    // Parts of a model send activations, too, which no ring of gradients stands for.
    const bool divided = !facts.parallel.empty();
    const std::uint64_t sent = divided ? gradient_bytes_ : bytes_sent_;
    if (sent > 0 && dense_bytes_ > 0) {
      text += format(" (%sfp32 ring %s, ratio %.1f)", divided ? "gradients: " : "",
                     amount(static_cast<double>(dense_bytes_) / steps).c_str(),
                     static_cast<double>(dense_bytes_) / static_cast<double>(sent));
    }
  }
  std::printf("%s, hash of the parameters %016llx\n", text.c_str(),
              static_cast<unsigned long long>(facts.params_hash));
  if (facts.pipeline) {
    std::printf(
        "%s: schedule %s, bubble %.1f %% (simulated: idle share of a step, stages by their "
        "products)\n",
        facts.parallel.c_str(), facts.pipeline->schedule.c_str(), 100 * facts.pipeline->bubble);
  }
  if (facts.best) {
    std::printf("lowest test loss %.4f, after step %lld: %s\n", facts.best->test_loss,
                static_cast<long long>(facts.best->step), facts.best->path.c_str());
  }
  if (facts.memory && facts.part_memory.empty()) {
    std::printf("%s", memory_text(*facts.memory).c_str());
  }
  for (std::size_t rank = 0; rank < facts.part_memory.size(); ++rank) {
    std::printf("%s", memory_text(facts.part_memory[rank], static_cast<int>(rank)).c_str());
  }
  std::fflush(stdout);
  return {};
}

}  // namespace gradwire
