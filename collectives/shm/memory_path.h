// The path of shared memory, for a group whose ranks are on one host and share a segment.
// Collectives that leave the choice of the algorithm to the communicator ("auto"), or say "shm", go
// this way, and so do sums in the canonical order: in memory every sum is a left fold in rank
// order, rounded once, whatever its size and wherever the tensors are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/plan/lent_inputs.h"
#include "collectives/plan/path.h"
#include "collectives/shm/channel.h"
#include "collectives/shm/messages.h"
#include "collectives/shm/setup.h"

namespace gradwire {

class MemoryPath final : public SharedPath {
 public:
  // Collective; hosts: of ranks of one. Null where there is no memory for a board.
  static Result<std::unique_ptr<CallPath>> create(const GroupMembers& members,
                                                  const std::shared_ptr<const SharedHosts>& hosts);
  ~MemoryPath() override;

  // All but what is on a device, and all_to_all_v, of whose blocks each rank knows some.
  bool serves(const OpCall& call, const OpOptions& options) const override;
  Result<std::optional<std::string_view>> algorithm_for(OpKind kind, std::int64_t bytes,
                                                        std::string_view wanted) override;
  Result<std::unique_ptr<PreparedCall>> prepare(const CheckedCall& call) override;
  // Small operations end in here, without an allocation or another thread.
  Result<Work> start(const CheckedCall& call) override;

  std::optional<Result<int>> probe(int peer, int tag, Deadline until) override;
  std::string describe() const override;
  std::uint64_t group_bytes() const override { return messages_ ? messages_->bytes_sent() : 0; }
  SharedMemory shared_memory() const override { return SharedMemory::kAllRanks; }

 private:
  class Run;
  class Message;
  // One queue each: small operations do not wait for large ones, nor these for larger ones.
  enum QueueOf : std::uint8_t { kLatency, kPipeline, kBulk, kQueues };
  using Channels = std::array<std::shared_ptr<ShmChannel>, kQueues>;

  MemoryPath(Group& group, std::shared_ptr<const SharedHosts> hosts, Channels channels,
             std::shared_ptr<ShmMessages> messages);
  bool serves(OpKind kind, std::string_view algorithm) const;
  const std::shared_ptr<ShmChannel>& channel_for(std::size_t bytes) const;

  Channels channels_;
  std::shared_ptr<ShmMessages> messages_;  // null: they go another way
  std::shared_ptr<OwnMemory> memory_;
};

}  // namespace gradwire
