// A communicator whose ranks are on several hosts, and share memory with the others of their host.
// all_reduce, broadcast, all_gather(_v) and barrier that leave the choice of the algorithm to it
// ("auto"), or say "two_level", go through memory inside hosts and by messages between them;
// everything else goes to the communicator over messages below.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/group_communicator.h"
#include "collectives/shm_setup.h"
#include "collectives/two_level_stages.h"
#include "gradwire/communicator.h"

namespace gradwire {

class TwoLevelCommunicator final : public Communicator {
 public:
  // Collective. here: the hosts of the group's ranks, several, of which some have several. `group`
  // itself where a host has no memory for a board.
  static Result<std::unique_ptr<Communicator>> create(
      std::unique_ptr<GroupCommunicator> group, const std::shared_ptr<const SharedHosts>& hosts,
      const Nodes& here);

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  int job_rank(int r) const override { return group_->job_rank(r); }
  Status status() const override { return group_->status(); }
  TransportStats transport_stats() const override;
  std::uint64_t bytes_sent() const override;
  std::string describe() const override;
  Result<std::string_view> algorithm_for(OpKind kind, std::int64_t bytes,
                                         std::string_view wanted) override;
  std::vector<int> nodes() const override { return group_->nodes(); }
  LinkModel links() const override { return group_->links(); }
  void use_links(const LinkModel& links) override;

  void abort(std::string_view reason) override { group_->abort(reason); }
  // The survivors go on over messages.
  Result<std::unique_ptr<Communicator>> shrink(std::optional<Deadline> deadline) override {
    return group_->shrink(deadline);
  }
  Result<Buffer> allocate(std::size_t bytes) override;
  Result<std::unique_ptr<Communicator>> split(int color, int key) override;
  Result<Work> start(const OpCall& call, const OpOptions& options) override;
  Result<Work> start_all(std::span<const OpCall> calls, const OpOptions& options) override;
  Result<PersistentWork> prepare(const OpCall& call, const OpOptions& options) override;

 private:
  TwoLevelCommunicator(std::unique_ptr<GroupCommunicator> group,
                       std::shared_ptr<const SharedHosts> hosts, TwoLevelStages stages);
  bool by_two_levels(const OpCall& call, std::string_view wanted) const;
  Result<Work> launch(const OpCall& call, const Extent& extent, std::optional<Deadline> deadline);

  std::unique_ptr<GroupCommunicator> group_;
  std::shared_ptr<const SharedHosts> hosts_;
  TwoLevelStages stages_;
  std::shared_ptr<std::atomic<std::uint64_t>> bytes_;  // of what goes by two levels
};

}  // namespace gradwire
