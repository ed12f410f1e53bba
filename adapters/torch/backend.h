// PyTorch's process-group backend "gradwire": c10d's operations on a communicator of gradwire.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "adapters/torch/meeting.h"
#include "adapters/torch/options.h"
#include "adapters/torch/work.h"

namespace gradwire::torch_backend {

// Everything is exact; tensors lie in host memory or on one CUDA device (an operation starts after
// what is on the current stream then), may have gaps (then they are copied) and any element type
// that the operation has a meaning for. The names of the virtual functions are c10d's,
// and so is what they do. Operations are numbered in the order of the calls, which must be the same
// on all ranks, as c10d wants anyway. Errors of arguments are ValueErrors at the call; failures of
// communication are DistBackendErrors at wait(), in the future, and at every call from then on.
class GradwireBackend final : public c10d::Backend {
 public:
  using Works = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  // Collective over the group; see meet().
  GradwireBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                  c10::intrusive_ptr<GroupOptions> options);
  ~GradwireBackend() override;

  // A lasting share of the communicator; DistBackendError after shutdown().
  Comm comm() const;
  const std::shared_ptr<const Completion> completion() const { return completion_; }
  // Refuses what would hang: an operation that is issued from a callback of an asynchronous one.
  void check_caller(const char* operation);
  // Starts an operation, or keeps it for endCoalescing().
  Works start(Operation operation);
  // A work for an operation that was started by other means.
  c10::intrusive_ptr<GradwireWork> work_of(Operation operation);

  const std::string getBackendName() const override { return "gradwire"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  bool supportsShrinking() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return number_.load(); }
  void startCoalescing() override;
  Works endCoalescing() override;

  Works broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  Works allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  Works allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  Works allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  Works reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  Works allgather(TensorLists& outputs, Tensors& inputs,
                  const c10d::AllgatherOptions& opts) override;
  Works _allgather_base(at::Tensor& output, at::Tensor& input,
                        const c10d::AllgatherOptions& opts) override;
  Works allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                            const c10d::AllgatherOptions& opts) override;
  Works allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                        const c10d::AllgatherOptions& opts) override;
  Works gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  Works scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override;
  Works reduce_scatter(Tensors& outputs, TensorLists& inputs,
                       const c10d::ReduceScatterOptions& opts) override;
  Works _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                             const c10d::ReduceScatterOptions& opts) override;
  Works reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                        const c10d::ReduceScatterOptions& opts) override;
  Works alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                      std::vector<int64_t>& input_splits,
                      const c10d::AllToAllOptions& opts) override;
  Works alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  Works barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  Works send(Tensors& tensors, int peer, int tag) override;
  Works recv(Tensors& tensors, int peer, int tag) override;
  Works recvAnysource(Tensors& tensors, int tag) override;

  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
      const c10::intrusive_ptr<c10d::Backend::Options>& opts) override;
  c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& opts,
                                          const int& rank, const int& size) override;
  c10::intrusive_ptr<c10d::Backend> shrink(
      const std::vector<int64_t>& ranks_to_exclude, int flags,
      const c10::intrusive_ptr<c10d::Backend::Options>& opts) override;

  void registerOnCompletionHook(
      std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override;
  void waitForPendingWorks() override;
  void enableCollectivesTiming() override {}  // every work is timed
  c10d::ErrorType getError() override;
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  // Ends everything under way, here and on the other ranks; the group is finished.
  void abort() override;
  // Waits for operations for which streams of a device wait, within the group's time limit; then
  // release().
  void shutdown() override;
  // Frees the communicator, within two seconds, and waits for callbacks that run, as long.
  // Repeated calls do nothing.
  void release();

 private:
  std::chrono::milliseconds timeout_for(std::chrono::milliseconds asked) const;
  c10::intrusive_ptr<GroupOptions> options_for(
      const c10::intrusive_ptr<c10d::Backend::Options>& opts);
  Works all_gather_many(const Tensors& outputs, const Tensors& inputs, c10d::OpType type,
                        const char* name, std::chrono::milliseconds timeout);
  Works reduce_scatter_many(const Tensors& outputs, const Tensors& inputs, c10d::OpType type,
                            const char* name, const c10d::ReduceOp& op,
                            std::chrono::milliseconds timeout);
  c10::Stream results_stream(const at::Device& device);
  void await_others(const Comm& comm, std::chrono::steady_clock::time_point until, bool all,
                    std::chrono::milliseconds limit);

  const c10::intrusive_ptr<c10d::Store> store_;
  const c10::intrusive_ptr<GroupOptions> options_;
  std::shared_ptr<Completion> completion_;
  std::atomic<std::uint64_t> number_{0};
  std::atomic<int> shrinks_{0};

  mutable std::mutex mutex_;
  Comm comm_;
  std::chrono::milliseconds timeout_;
  struct Batch {
    std::vector<gw_op> ops;
    std::vector<c10::intrusive_ptr<GradwireWork>> works;
    std::chrono::milliseconds timeout{0};
  };
  std::optional<Batch> batch_;
  std::mutex streams_mutex_;
  std::vector<c10::Stream> streams_;  // on which results are followed, one a device
  // monitoredBarrier()'s wait for rank 0.
  struct Release {
    ~Release() { gw_work_free(work); }
    std::uint8_t byte = 0;
    gw_work* work = nullptr;
  };
  std::unique_ptr<Release> release_;
};

}  // namespace gradwire::torch_backend
