// A planned call in shared memory, and its runs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "collectives/failure/flight_recorder.h"
#include "collectives/plan/lent_inputs.h"
#include "collectives/plan/path.h"
#include "collectives/shm/call.h"
#include "collectives/shm/channel.h"
#include "collectives/shm/execution.h"

namespace gradwire {

class MemoryRun final : public PreparedCall {
 public:
  // next: the number of the channel's next operation. Both outlive this.
  MemoryRun(Group& group, const std::shared_ptr<ShmChannel>& channel, std::uint64_t& next,
            ShmCall call, Operated operated)
      : PreparedCall(group),
        channel_(channel),
        next_(next),
        call_(std::move(call)),
        operated_(std::move(operated)) {}

  Status before() override { return operated_.before ? operated_.before() : Status(); }
  Status start(const std::shared_ptr<WorkState>& work, std::optional<Deadline> deadline) override;
  // Small operations end in here.
  Result<Work> start_alone(std::optional<Deadline> deadline) override;

 private:
  struct Numbers {
    std::uint64_t operation;
    std::uint64_t flight;
  };
  std::uint64_t begin_flight(std::uint64_t number) const;
  Status hand_over(ShmExecution execution, Numbers numbers, std::optional<Deadline> deadline,
                   std::shared_ptr<WorkState> work);
  bool run_at_once(ShmExecution& execution) const;
  bool wait_at_once(const ShmExecution& execution) const;

  const std::shared_ptr<ShmChannel>& channel_;
  std::uint64_t& next_;
  ShmCall call_;
  Operated operated_;
};

}  // namespace gradwire
