// The serving end of ps_async.h.
#pragma once

#include <span>
#include <vector>

#include "adapters/trainer/modes/async_job.h"

namespace gradwire {

// Serves all workers until each has sent its last push. The first error, of any worker's
// connection, ends them all.
Status serve_workers(const AsyncJob& job, std::vector<FrameLink>& links, std::span<float> params,
                     const OnModeStep& on_step, AsyncOutcome& outcome);

}  // namespace gradwire
