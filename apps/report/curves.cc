#include "apps/report/curves.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "apps/report/table.h"
#include "base/text.h"

namespace gradwire {
namespace {

using Runs = std::vector<const RunResult*>;

std::size_t common_steps(const Runs& runs) {
  std::size_t steps = runs.empty() ? 0 : runs[0]->metrics.steps.size();
  for (const RunResult* run : runs) {
    const auto& own = run->metrics.steps;
    std::size_t finite = 0;
    while (finite < own.size() && std::isfinite(own[finite].loss)) ++finite;
    steps = std::min(steps, finite);
  }
  return steps;
}

void put_range(CurvePoint& point, const std::vector<double>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  point.least = *least;
  point.most = *most;
  for (const double value : values) point.mean += value / static_cast<double>(values.size());
}

// Bytes and seconds of all runs, step by step.
class Costs {
 public:
  explicit Costs(const Runs& runs) : runs_(runs) {}
  void pass(std::size_t step) {
    const auto n = static_cast<double>(runs_.size());
    for (const RunResult* run : runs_) {
      bytes_ += run->metrics.steps[step].bytes_sent / n;
      seconds_ += run->metrics.steps[step].step_seconds / n;
    }
    ++steps_;
  }
  CurvePoint point() const {
    return {.step = static_cast<double>(steps_), .bytes = bytes_, .seconds = seconds_};
  }

 private:
  const Runs& runs_;
  std::size_t steps_ = 0;
  double bytes_ = 0;
  double seconds_ = 0;
};

std::string lines_of(const StudyCase& one, const char* quantity, const Curve& curve) {
  std::string text;
  for (const CurvePoint& p : curve) {
    text += csv_quoted(one.setting) + "," + csv_quoted(one.row) +
            format(",%s,%.0f,%.0f,%.6g,%.6g,%.6g,%.6g\n", quantity, p.step, p.bytes, p.seconds,
                   p.mean, p.least, p.most);
  }
  return text;
}

}  // namespace

Curve loss_curve(const Runs& runs, std::size_t points) {
  Curve curve;
  const std::size_t steps = common_steps(runs);
  const std::size_t window = std::max<std::size_t>(1, (steps + points - 1) / points);
  Costs costs(runs);
  std::vector<double> sums(runs.size(), 0.0);
  std::size_t in_window = 0;
  for (std::size_t i = 0; i < steps; ++i) {
    costs.pass(i);
    for (std::size_t r = 0; r < runs.size(); ++r) sums[r] += runs[r]->metrics.steps[i].loss;
    if (++in_window < window && i + 1 < steps) continue;
    for (double& sum : sums) sum /= static_cast<double>(in_window);
    curve.push_back(costs.point());
    put_range(curve.back(), sums);
    std::fill(sums.begin(), sums.end(), 0.0);
    in_window = 0;
  }
  return curve;
}

namespace {

// One point for each evaluation that all runs made.
Curve evaluation_curve(const Runs& runs,
                       const std::function<std::optional<double>(const StepMetrics&)>& value) {
  Curve curve;
  const std::size_t steps = common_steps(runs);
  Costs costs(runs);
  for (std::size_t i = 0; i < steps; ++i) {
    costs.pass(i);
    std::vector<double> values;
    for (const RunResult* run : runs) {
      const std::optional<double> one = value(run->metrics.steps[i]);
      if (one && std::isfinite(*one)) values.push_back(*one);
    }
    if (values.size() < runs.size()) continue;
    curve.push_back(costs.point());
    put_range(curve.back(), values);
  }
  return curve;
}

}  // namespace

Curve test_loss_curve(const Runs& runs) {
  return evaluation_curve(runs, [](const StepMetrics& step) { return step.test_loss; });
}

Curve accuracy_curve(const Runs& runs) {
  return evaluation_curve(runs, [](const StepMetrics& step) -> std::optional<double> {
    if (!step.accuracy) return std::nullopt;
    return 100 * *step.accuracy;
  });
}

std::string csv_curves(const Results& results) {
  std::string text = "setting,row,quantity,step,bytes,seconds,mean,least,most\n";
  for (std::size_t i = 0; i < results.plan().cases.size(); ++i) {
    const StudyCase& one = results.plan().cases[i];
    const Runs runs = runs_of(results, i);
    text += lines_of(one, "loss", loss_curve(runs));
    text += lines_of(one, "accuracy", accuracy_curve(runs));
    text += lines_of(one, "test_loss", test_loss_curve(runs));
  }
  return text;
}

}  // namespace gradwire
