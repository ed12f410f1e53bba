// What a step does beside layers: cases that tests of training have in common, and what its reports
// must say on both sides.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/trained.h"

namespace gradwire::gpu {

struct StepCase {
  std::string name;
  std::function<void(TrainingOptions&)> change;
};

inline void PrintTo(const StepCase& one, std::ostream* out) { *out << one.name; }

// An optimizer that divides by magnitudes. Epsilon is large, so that gradients near 0 do not decide
// a whole step.
inline void take_adaptive(TrainingOptions& options, const std::string& name) {
  options.optimizer.name = name;
  options.optimizer.epsilon = 1e-3;
  options.optimizer.weight_decay = 0.1;
  options.lr = 0.01;
}

// In every precision; then `more`.
inline std::vector<StepCase> step_cases(std::vector<StepCase> more) {
  using O = TrainingOptions;
  std::vector<StepCase> all{{"adamw", [](O& o) { take_adaptive(o, "adamw"); }},
                            {"accumulate", [](O& o) { o.accumulate = 4; }},
                            {"clip", [](O& o) { o.clip = 0.2; }},
                            {"clip_workers",
                             [](O& o) {
                               o.accumulate = 2;
                               o.clip_worker = 0.3;
                             }},
                            {"recompute", [](O& o) { o.recompute = "2"; }}};
  for (StepCase& one : more) all.push_back(std::move(one));
  return all;
}

// Losses and norms differ by that share of the host's at most, and where `clip` asks for it every
// gradient was longer.
inline void expect_alike(const Trained& host, const Trained& there, double clip, double share) {
  ASSERT_EQ(there.reports.size(), host.reports.size());
  for (std::size_t i = 0; i < host.reports.size(); ++i) {
    EXPECT_NEAR(there.losses[i], host.losses[i], share * host.losses[i]);
    ASSERT_EQ(there.reports[i].gradient_norm.has_value(), clip > 0);
    if (clip == 0) continue;
    const double norm = *host.reports[i].gradient_norm;
    EXPECT_NEAR(*there.reports[i].gradient_norm, norm, share * norm);
    EXPECT_GT(norm, clip) << "nothing is clipped";
  }
}

}  // namespace gradwire::gpu
