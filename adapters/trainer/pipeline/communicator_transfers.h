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
#include "gradwire/stream.h"
#include "gradwire/tensor.h"
#include "gradwire/work.h"
#include "trainer/pipeline/progress.h"
#include "trainer/pipeline/run/transfers.h"
#include "trainer/pipeline/schedule.h"

namespace gradwire {

// How lists are lowered whose messages `group` carries, from and to memory of `device`: for NCCL,
// which has no tags, in order.
PipelineLinks links_of(Communicator& group, Device device);

// Group rank r is the schedule's rank r. A message's tag has its boundary, direction and
// micro-batch, so that those between the same two ranks are not confused, whatever order they are
// in; over ordered links messages have no tags. Deadlines are the communicator's: each transfer has
// one.
//
// Memory of a device: a transfer follows what its stream has when it is started.
//   by messages   (UCX, TCP, threads) done() asks and wait() waits for the copies between device
//                 and host, and for the peer: the host waits, once for each message that is read
//   by NCCL       a transfer is on the stream, and so is what follows it: wait() and done() have
//                 the stream wait, the host waits in finish() alone
class CommunicatorTransfers final : public PipelineTransfers {
 public:
  // The group is borrowed. `stream`: what computes, borrowed, too; messages are memory of its
  // device. kInvalidArgument: the group has another size than the schedule; tagged links by NCCL.
  // kUnsupported: more messages than there are tags.
  static Result<CommunicatorTransfers> create(Communicator& group, const PipelineSchedule& schedule,
                                              PipelineLinks links = PipelineLinks::kTagged,
                                              const Stream& stream = {});

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
  Status finish() override;
  // Cancels what is under way, and the communicator with it: the other ranks end, too.
  void stop() override;

 private:
  CommunicatorTransfers(Communicator& group, int micro_batches, PipelineLinks links,
                        const Stream& stream)
      : group_(&group), micro_batches_(micro_batches), links_(links), stream_(stream) {}
  int tag_of(const PipelineOp& op) const;
  Status end(std::size_t number);
  OpOptions options() const;

  Communicator* group_;
  int micro_batches_;
  PipelineLinks links_;
  Stream stream_;
  bool follows_ = false;  // by NCCL
  TrafficBytes sent_{};
  double waited_seconds_ = 0;
  std::vector<std::optional<Work>> under_way_;  // by number
  std::vector<Work> followed_;                  // that the stream has waited for, the host not
};

}  // namespace gradwire
