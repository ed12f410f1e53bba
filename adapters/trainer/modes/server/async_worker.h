// The workers' end of ps_async.h.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "adapters/trainer/modes/mode_state.h"
#include "adapters/trainer/modes/server/async_job.h"

namespace gradwire {

// One worker. Used from one thread.
class AsyncWorker {
 public:
  // Everything is borrowed for its life. `copy`: its model, whatever it is.
  static Result<std::unique_ptr<AsyncWorker>> create(const AsyncJob& job,
                                                     std::vector<FrameLink>& links,
                                                     GradientSource& source, std::span<float> copy);
  virtual ~AsyncWorker() = default;
  // Steps [begin, end), or fewer where a rank was asked to end, the first of which pulls the whole
  // model. Returns after how many it stopped.
  virtual Result<std::int64_t> run(std::int64_t begin, std::int64_t end) = 0;
  // Between runs. What is written to them is adopted at once.
  virtual ModeParts parts() = 0;
  void adopt(std::int64_t /*done*/) {}
};

}  // namespace gradwire
