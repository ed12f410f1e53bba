// A communicator whose ranks are on one host and share an arena. Collectives that leave the choice
// of the algorithm to it ("auto"), or say "shm", go through memory, and so do sums in the canonical
// order: in memory every sum is a left fold in rank order, rounded once, whatever its size and
// wherever the tensors are. Everything else goes to the communicator over messages below.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "collectives/group_communicator.h"
#include "collectives/sharing_communicator.h"
#include "collectives/shm/channel.h"
#include "collectives/shm/execution.h"
#include "collectives/shm/operations.h"
#include "gradwire/communicator.h"

namespace gradwire {

class ShmCommunicator final : public SharingCommunicator {
 public:
  // Collective; hosts: of ranks of one. `group` itself where there is no memory for a board.
  static Result<std::unique_ptr<Communicator>> create(
      std::unique_ptr<GroupCommunicator>& group, const std::shared_ptr<const SharedHosts>& hosts);
  ~ShmCommunicator() override;

  std::string describe() const override;
  // "shm", or of what does not run in shared memory.
  Result<std::string_view> algorithm_for(OpKind kind, std::int64_t bytes,
                                         std::string_view wanted) override;
  Result<Work> start(const OpCall& call, const OpOptions& options) override;
  Result<Work> start_all(std::span<const OpCall> calls, const OpOptions& options) override;
  Result<PersistentWork> prepare(const OpCall& call, const OpOptions& options) override;

 private:
  ShmCommunicator(std::unique_ptr<GroupCommunicator> group,
                  std::shared_ptr<const SharedHosts> hosts, std::shared_ptr<ShmChannel> channel);
  struct Numbers {
    std::uint64_t operation;
    std::uint64_t flight;
  };
  bool in_memory(OpKind kind, std::string_view algorithm) const;
  bool in_memory(const OpCall& call, const OpOptions& options) const;
  Status plan(const OpCall& call, const OpOptions& options, ShmOperation& planned) const;
  Result<Work> launch(const ShmOperation& planned, std::optional<Deadline> deadline);
  std::uint64_t begin_flight(const ShmCall& call, std::uint64_t number);
  Status hand_over(ShmExecution execution, const ShmOperation& planned, Numbers numbers,
                   std::optional<Deadline> deadline, std::shared_ptr<WorkState> work);
  bool run_at_once(ShmExecution& execution) const;
  bool wait_at_once(const ShmExecution& execution) const;

  std::shared_ptr<ShmChannel> channel_;
  std::shared_ptr<ShmStaging> staging_;
  std::uint64_t next_ = 1;
};

// Whether all ranks of `communicator` share memory, and its collectives go through it.
bool shares_memory(const Communicator& communicator);

}  // namespace gradwire
