// `gradwire plan --cluster`: the mesh on which a model's step takes least time.
#pragma once

#include "apps/plan/plan_question.h"
#include "gradwire/status.h"

namespace gradwire {

// Searches, prints and writes what the question asks for. kInvalidArgument: a cluster file that
// cannot be read, a row that is not there, no mesh that fits.
Status plan_mesh(const PlanQuestion& question);

}  // namespace gradwire
