// The working end of ps_async.h.
#pragma once

#include <span>
#include <vector>

#include "adapters/trainer/modes/async_job.h"

namespace gradwire {

// All of one worker's steps. `params` becomes its last copy of the model.
Status work_for_servers(const AsyncJob& job, std::vector<FrameLink>& links, GradientSource& source,
                        std::span<float> params);

}  // namespace gradwire
