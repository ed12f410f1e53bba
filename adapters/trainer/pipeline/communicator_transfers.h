// Messages between the stages of a pipeline as sends and receives of a communicator.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "adapters/trainer/traffic_bytes.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"
#include "gradwire/work.h"
#include "trainer/pipeline/run/transfers.h"
#include "trainer/pipeline/schedule.h"

namespace gradwire {

// Group rank r is the schedule's rank r. A message's tag has its boundary, direction and
// micro-batch, so that those between the same two ranks are not confused, whatever order they are
// in. Deadlines are the communicator's: each transfer has one.
class CommunicatorTransfers final : public PipelineTransfers {
 public:
  // The group is borrowed. kInvalidArgument: it has another size than the schedule. kUnsupported:
  // more messages than there are tags.
  static Result<CommunicatorTransfers> create(Communicator& group,
                                              const PipelineSchedule& schedule);

  // Of messages that this rank has sent.
  const TrafficBytes& sent() const { return sent_; }

  Status prepare(std::size_t count) override;
  Status send(std::size_t number, const PipelineOp& op, int peer,
              std::span<const std::byte> bytes) override;
  Status receive(std::size_t number, const PipelineOp& op, int peer,
                 std::span<std::byte> bytes) override;
  Result<bool> done(std::size_t number) override;
  Status wait(std::size_t number) override;
  double waited_seconds() const override { return waited_seconds_; }
  // Cancels what is under way, and the communicator with it: the other ranks end, too.
  void stop() override;

 private:
  CommunicatorTransfers(Communicator& group, int micro_batches)
      : group_(&group), micro_batches_(micro_batches) {}
  int tag_of(const PipelineOp& op) const;
  Status end(std::size_t number);

  Communicator* group_;
  int micro_batches_;
  TrafficBytes sent_{};
  double waited_seconds_ = 0;
  std::vector<std::optional<Work>> under_way_;  // by number
};

}  // namespace gradwire
