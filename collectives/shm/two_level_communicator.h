// A communicator whose ranks are on several hosts, and share memory with the others of their host.
// all_reduce, broadcast, all_gather(_v) and barrier that leave the choice of the algorithm to it
// ("auto"), or say "two_level", go through memory inside hosts and by messages between them;
// everything else goes to the communicator over messages below.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "collectives/group_communicator.h"
#include "collectives/sharing_communicator.h"
#include "collectives/shm/setup.h"
#include "collectives/shm/two_level_stages.h"
#include "gradwire/communicator.h"

namespace gradwire {

class TwoLevelCommunicator final : public SharingCommunicator {
 public:
  // Collective. here: the hosts of the group's ranks, several, of which some have several. `group`
  // itself where a host has no memory for a board.
  static Result<std::unique_ptr<Communicator>> create(
      std::unique_ptr<GroupCommunicator>& group, const std::shared_ptr<const SharedHosts>& hosts,
      const Nodes& here);

  std::string describe() const override;
  Result<std::string_view> algorithm_for(OpKind kind, std::int64_t bytes,
                                         std::string_view wanted) override;
  void set_link_parameters(const LinkModel& links) override;
  Result<Work> start(const OpCall& call, const OpOptions& options) override;
  Result<Work> start_all(std::span<const OpCall> calls, const OpOptions& options) override;
  Result<PersistentWork> prepare(const OpCall& call, const OpOptions& options) override;

 private:
  TwoLevelCommunicator(std::unique_ptr<GroupCommunicator> group,
                       std::shared_ptr<const SharedHosts> hosts, TwoLevelStages stages);
  bool by_two_levels(const OpCall& call, std::string_view wanted) const;
  Result<Work> launch(const OpCall& call, const Extent& extent, std::optional<Deadline> deadline);

  TwoLevelStages stages_;
};

// Whether the ranks of each of several hosts share memory, and collectives go through it there.
bool shares_memory_inside(const Communicator& communicator);

}  // namespace gradwire
