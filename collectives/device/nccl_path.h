// The path of tensors on CUDA devices: NCCL moves and reduces them. Who is there, whose fault a
// failure is, and what is on the host is the business of the engine of messages between the same
// ranks.
//
// What is on the device: calls with a tensor there, or (barriers, and ranks that have no part) with
// a stream of the device. Their work is enqueued on that stream when the call returns, which does
// not wait for it; kernels on the same stream need no wait(). Where the first call to a peer makes
// a connection it waits for the peer. Tensors on the host go over messages, as if there were no
// NCCL.
//
// Calls on a stream that is captured become part of its CUDA graph, on all ranks or on none; the
// Work is done at once. What the graph does later has no deadline, is not counted by bytes_sent(),
// and hangs where a rank does not launch it, until somebody calls abort(). The communicator, and
// the tensors, outlive the graph.
//
// Differences to operations on the host: mean and pre_mul_sum are NCCL's own, which scale before
// they add; maxima and minima of floating numbers are NCCL's of integers (nccl_ordered.h); NCCL
// fixes the order of a sum, the same on all ranks, but not alike for all sizes;
// bytes_sent() counts what a rank has to send at least; sends and receives that wait for one
// another must be one batch (start_all), and no two may differ in their order; ranks whose calls
// differ are not told so but when they are late. Not served (kUnsupported): exclusive_scan, tags,
// receives from any source, named algorithms; nor (kInvalidArgument) CUDA's default stream for
// ranks that are threads of one process with one device.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/device/nccl_ordered.h"
#include "collectives/device/nccl_plan.h"
#include "collectives/plan/arguments.h"
#include "collectives/plan/path.h"
#include "comm/nccl/nccl_comm.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "gradwire/buffer.h"
#include "gradwire/communicator.h"

namespace gradwire {

// The job ranks, other than its own, that are threads of this rank's process and bring its device:
// what one of them has on CUDA's default stream stands before what this rank puts there.
using NcclNeighbours = std::vector<int>;

class NcclPath final : public CallPath {
 public:
  // What the communicators of a rank's job have in common.
  struct Job {
    std::shared_ptr<const nccl::Calls> calls;
    std::shared_ptr<Buffer> spare;  // some bytes of the device
    NcclNeighbours neighbours;
    std::shared_ptr<std::atomic<std::uint64_t>> bytes =
        std::make_shared<std::atomic<std::uint64_t>>(0);  // that NCCL was given to send
  };
  NcclPath(Group& group, std::shared_ptr<NcclComm> comm, Job job);
  ~NcclPath() override;

  // Calls on the device.
  bool serves(const OpCall& call, const OpOptions& options) const override {
    return names_device(call, options);
  }
  std::optional<Device> device() const override { return comm_->device(); }
  // Only where "nccl" is asked for: where the tensors are is not said.
  Result<std::optional<std::string_view>> algorithm_for(OpKind kind, std::int64_t bytes,
                                                        std::string_view wanted) override;
  Result<std::unique_ptr<PreparedCall>> prepare(const CheckedCall& call) override;
  // One for all: NCCL runs them in one group.
  Status prepare_all(const std::vector<CheckedCall>& calls,
                     std::vector<std::unique_ptr<PreparedCall>>& prepared) override;
  std::string describe() const override;
  // That NCCL has to send at least.
  std::uint64_t job_bytes() const override { return job_.bytes->load(std::memory_order_relaxed); }
  Result<std::unique_ptr<CallPath>> for_group(const GroupMembers& part) override;
  Result<std::unique_ptr<CallPath>> for_split(int color, int key,
                                              const GroupMembers* part) override;
  Result<std::unique_ptr<CallPath>> for_survivors(const GroupMembers& left) override;
  // NCCL splits what has nothing under way.
  Status await_all(Deadline deadline) override;

 private:
  class Run;
  // What an operation has of the device beside its tensors, and how much it sends.
  struct Enqueued {
    std::vector<cuda::Scratch>
        copies;  // freed in the stream's order, its device being the thread's
    std::optional<OrderedReductions> ordered;
    std::uint64_t bytes = 0;
  };
  // A call with what it lends, to be enqueued many times.
  struct Kept {
    explicit Kept(const CheckedCall& checked);
    OpCall call;
    Extent extent;
    std::vector<std::int64_t> counts;
    std::vector<std::int64_t> recv_counts;
    std::vector<TensorView> tensors;
  };
  using Calls = std::vector<std::unique_ptr<const Kept>>;

  Status check(const CheckedCall& call) const;
  Status start(const Calls& calls, const OpOptions& options, const std::shared_ptr<WorkState>& work,
               std::optional<Deadline> deadline);
  Status capture(const Calls& calls, const OpOptions& options, Deadline deadline);
  Status enqueue(const Calls& calls, const OpOptions& options, Deadline deadline,
                 Enqueued& made) const;
  Result<cuda::Event> enqueue_to_point(const Calls& calls, const OpOptions& options,
                                       Deadline deadline, Enqueued& made) const;
  std::vector<int> peers_of(const Calls& calls) const;

  Group& group_;
  std::shared_ptr<NcclComm> comm_;
  Job job_;
  std::vector<std::shared_ptr<WorkState>> open_;  // of operations that may be under way
  std::uint64_t next_pair_ = 0;
};

}  // namespace gradwire
