// A communicator whose tensors are on CUDA devices. NCCL moves and reduces them; who is there,
// whose fault a failure is, and what is on the host is the business of a communicator over messages
// below, of the same ranks.
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
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/bounded.h"
#include "collectives/device/nccl_agreement.h"
#include "collectives/device/nccl_factory.h"
#include "collectives/device/nccl_ordered.h"
#include "collectives/device/nccl_plan.h"
#include "collectives/group_communicator.h"
#include "collectives/messages_below.h"
#include "collectives/plan/arguments.h"
#include "comm/nccl/nccl_comm.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "gradwire/buffer.h"
#include "gradwire/communicator.h"

namespace gradwire {

class NcclCommunicator final : public Communicator, public Bounded, public MessagesBelow {
 public:
  // What the communicators of a rank's job have in common.
  struct Job {
    std::shared_ptr<const nccl::Calls> calls;
    std::shared_ptr<Buffer> spare;  // some bytes of the device
    NcclNeighbours neighbours;
    std::shared_ptr<std::atomic<std::uint64_t>> bytes =
        std::make_shared<std::atomic<std::uint64_t>>(0);  // that NCCL was given to send
  };
  NcclCommunicator(std::unique_ptr<GroupCommunicator> group, std::shared_ptr<NcclComm> comm,
                   Job job);
  ~NcclCommunicator() override;

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  int job_rank(int r) const override { return group_->job_rank(r); }
  Status status() const override { return group_->status(); }
  // Messages', but for bytes_sent, to which come those that NCCL has to send at least, for all of
  // the job's communicators.
  TransportStats transport_stats() const override;
  std::uint64_t bytes_sent() const override;
  std::string describe() const override;
  double deadline_seconds() const override { return group_->deadline_seconds(); }
  std::vector<int> nodes() const override { return group_->nodes(); }
  LinkModel links() const override { return group_->links(); }
  void set_link_parameters(const LinkModel& links) override { group_->set_link_parameters(links); }

  // Of tensors on the host, unless "nccl" is asked for.
  Result<std::string_view> algorithm_for(OpKind kind, std::int64_t bytes,
                                         std::string_view wanted) override;
  void abort(std::string_view reason) override { group_->abort(reason); }
  Result<std::unique_ptr<Communicator>> shrink(std::optional<Deadline> deadline) override;
  Result<std::unique_ptr<Communicator>> split(int color, int key) override;
  Result<std::unique_ptr<Communicator>> split_messages(int color, int key) override {
    return group_->split(color, key);
  }
  Result<int> probe(int peer, int tag, Deadline until) override {
    return group_->probe(peer, tag, until);
  }
  Result<Work> start(const OpCall& call, const OpOptions& options) override;
  // All calls on the device or all on the host.
  Result<Work> start_all(std::span<const OpCall> calls, const OpOptions& options) override;
  Result<PersistentWork> prepare(const OpCall& call, const OpOptions& options) override;

 private:
  struct Checked {
    OpCall call;
    Extent extent;
  };
  bool on_device(const OpCall& call, const OpOptions& options) const;
  Result<Checked> check(const OpCall& call, const OpOptions& options) const;
  Result<Work> launch(const std::vector<Checked>& calls, const OpOptions& options);
  Result<Work> capture(const std::vector<Checked>& calls, const OpOptions& options);
  // What an operation has of the device beside its tensors, and how much it sends.
  struct Enqueued {
    std::vector<cuda::Scratch>
        copies;  // freed in the stream's order, its device being the thread's
    std::optional<OrderedReductions> ordered;
    std::uint64_t bytes = 0;
  };
  Status enqueue(const std::vector<Checked>& calls, const OpOptions& options, Deadline deadline,
                 Enqueued& made) const;
  Result<cuda::Event> enqueue_to_point(const std::vector<Checked>& calls, const OpOptions& options,
                                       Deadline deadline, Enqueued& made) const;
  std::vector<int> peers_of(const std::vector<Checked>& calls) const;
  Status await_all(Deadline deadline);

  std::unique_ptr<GroupCommunicator> group_;
  std::shared_ptr<NcclComm> comm_;
  Job job_;
  std::shared_ptr<std::atomic<std::uint64_t>> bytes_;
  std::vector<std::shared_ptr<WorkState>> open_;  // of operations that may be under way
  std::uint64_t next_pair_ = 0;
};

}  // namespace gradwire
