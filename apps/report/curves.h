// The course of a case's runs: means over the seeds with their range, against steps, bytes and
// seconds.
#pragma once

#include <string>
#include <vector>

#include "apps/report/results.h"

namespace gradwire {

struct CurvePoint {
  double step = 0;     // steps done
  double bytes = 0;    // sent by rank 0 until then, mean over the seeds
  double seconds = 0;  // of training until then, without evaluation, mean
  double mean = 0;     // over the seeds
  double least = 0;
  double most = 0;
};
using Curve = std::vector<CurvePoint>;

// The training loss, as means over windows of steps, so that noise does not hide the course; at
// most `points` of them. Ends where the first seed ends or diverges.
Curve loss_curve(const std::vector<const RunResult*>& runs, std::size_t points = 60);

// The test loss, and the test accuracy in percent, where all seeds evaluated it.
Curve test_loss_curve(const std::vector<const RunResult*>& runs);
Curve accuracy_curve(const std::vector<const RunResult*>& runs);

// Long form: setting,row,quantity,step,bytes,seconds,mean,least,most.
std::string csv_curves(const Results& results);

}  // namespace gradwire
