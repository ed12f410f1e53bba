// The servers' end of ps_async.h.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "adapters/trainer/modes/mode_state.h"
#include "adapters/trainer/modes/server/async_job.h"

namespace gradwire {

// One server. Used from one thread; has others of its own while run() lasts.
class AsyncServer {
 public:
  // Everything is borrowed for its life. `params`: the model, of which this server owns its part;
  // `source`: null where the model has no running statistics.
  static Result<std::unique_ptr<AsyncServer>> create(const AsyncJob& job,
                                                     std::vector<FrameLink>& links,
                                                     std::span<float> params,
                                                     GradientSource* source,
                                                     const OnModeStep& on_step);
  virtual ~AsyncServer() = default;
  // Serves all workers' steps [begin, end), or fewer where a rank was asked to end, and returns
  // when all pushes are applied: after how many steps.
  virtual Result<std::int64_t> run(std::int64_t begin, std::int64_t end) = 0;
  // Between runs.
  virtual ModeParts parts() = 0;
  // After parts() were written to: so many steps are done.
  virtual void adopt(std::int64_t done) = 0;
  virtual AsyncOutcome outcome() const = 0;
};

}  // namespace gradwire
