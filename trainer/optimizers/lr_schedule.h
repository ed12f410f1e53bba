// The learning rate over a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

// A product of up to three kinds of factors; the default is 1 throughout.
//
//   schedule := "constant" | part {"," part}
//   part     := "warmup:" STEPS             at most one: (t + 1) / STEPS for t < STEPS
//             | "cosine:" FRACTION          at most one: from 1 at the end of the warm-up down half
//                                           a wave to FRACTION at the run's end
//             | "step:" FRACTION ":" FACTOR any number: FACTOR once that share of the run is done
//
//   warmup:100,cosine:0.1      step:0.6:0.1      warmup:50,step:0.5:0.1,step:0.75:0.1
struct LrSchedule {
  struct Change {
    double fraction = 1;  // of all steps, 0..1
    double factor = 1;    // >= 0
    friend bool operator==(const Change&, const Change&) = default;
  };
  std::vector<Change> changes = {};  // in order of mention
  std::int64_t warmup = 0;           // steps
  std::optional<double> cosine = {};

  // kInvalidArgument shows the text and the grammar.
  static Result<LrSchedule> parse(std::string_view text);
  // A text that parses to the same.
  std::string text() const;

  // Whether rates are a function of the run's length, too.
  bool depends_on_total() const { return cosine.has_value() || !changes.empty(); }

  // For step `step` (from 0) of `total`. A change happens at the first step that is not below
  // fraction * total: 0.6 of 2,340 is step 1,404.
  double at(double lr, std::int64_t step, std::int64_t total) const;
};

}  // namespace gradwire
