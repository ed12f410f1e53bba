// What more ranks of one batch gave, and what the communication between them left of it.
#pragma once

#include <string>
#include <vector>

#include "apps/report/summary.h"
#include "apps/sweep/study.h"

namespace gradwire {

// One row of a study on several numbers of ranks, everything else alike.
struct ScalingRow {
  std::string name;
  std::string setting;                    // without its ranks
  std::vector<int> ranks;                 // ascending; two at least
  std::vector<const CaseSummary*> cases;  // as many; borrowed

  // Of cases[i]: the batch is the same, so that this is steps per second over those of cases[0].
  double speed_up(std::size_t i) const;
  // N Tc / (Tc + Tcomm), with what a step waited for gradients as Tcomm: how many of its N ranks'
  // worth of computing is left.
  double left_by_communication(std::size_t i) const;
};

// cases: one per case of the plan. Rows of which only one number of ranks has results are left out.
std::vector<ScalingRow> scaling_of(const StudyPlan& plan, const std::vector<CaseSummary>& cases);

// A section for the page, "" where nothing scales.
std::string scaling_section(const std::vector<ScalingRow>& rows);

}  // namespace gradwire
