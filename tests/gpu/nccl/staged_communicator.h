// Lets programs whose tensors are on the host run on a device: each call's tensors are copied
// there, and back when it has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/communicator.h"

namespace gradwire::gpu {

// Where NCCL serves: what runs on devices under one name is asked for under any, so the algorithm's
// name is dropped, and what it has none for (exclusive_scan) stays on the host.
enum class Serves : std::uint8_t { kWhatNcclDoes, kEverything };

class StagedCommunicator final : public Communicator {
 public:
  // stream: a cudaStream_t, lent; null: the default stream.
  StagedCommunicator(std::unique_ptr<Communicator> world, Device device,
                     Serves serves = Serves::kWhatNcclDoes, void* stream = nullptr)
      : world_(std::move(world)), device_(device), serves_(serves), stream_(stream) {}

  int rank() const override { return world_->rank(); }
  int size() const override { return world_->size(); }
  int job_rank(int r) const override { return world_->job_rank(r); }
  Status status() const override { return world_->status(); }
  TransportStats transport_stats() const override { return world_->transport_stats(); }
  std::uint64_t bytes_sent() const override { return world_->bytes_sent(); }
  std::string describe() const override { return "staged: " + world_->describe(); }
  Result<std::string_view> algorithm_for(OpKind kind, std::int64_t bytes,
                                         std::string_view wanted) override {
    return world_->algorithm_for(kind, bytes, wanted);
  }
  std::vector<int> nodes() const override { return world_->nodes(); }
  LinkModel links() const override { return world_->links(); }
  void set_link_parameters(const LinkModel& links) override { world_->set_link_parameters(links); }
  void abort(std::string_view reason) override { world_->abort(reason); }
  Result<std::unique_ptr<Communicator>> shrink(std::optional<Deadline> deadline) override;
  Result<std::unique_ptr<Communicator>> split(int color, int key,
                                              const GroupOptions& options) override;
  // Under kWhatNcclDoes both return when the operations have ended.
  Result<Work> start(const OpCall& call, const OpOptions& options) override;
  Result<Work> start_all(std::span<const OpCall> calls, const OpOptions& options) override;
  Result<PersistentWork> prepare(const OpCall& call, const OpOptions& options) override;

 private:
  Result<std::unique_ptr<Communicator>> staged(Result<std::unique_ptr<Communicator>> part) const;

  std::unique_ptr<Communicator> world_;
  Device device_;
  Serves serves_;
  void* stream_;
};

// The laws that hold on devices, each as communicator_programs.h has it; what was found wrong.
std::string run_device_laws(Communicator& staged_world);

}  // namespace gradwire::gpu
