// What `gradwire plan --explain` prints: tables for people, and JSON lines.
#pragma once

#include <string>

#include "apps/plan/plan_explained.h"

namespace gradwire {

void print_explained(const PlanQuestion& question, const PlanExplained& explained);
// One line for each layer and division, for the totals, for each kind of work, and for each number
// of ranks that share tensors.
std::string explained_lines(const PlanExplained& explained);

}  // namespace gradwire
