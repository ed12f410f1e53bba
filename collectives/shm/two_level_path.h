// The path of two levels, for a group whose ranks are on several hosts and share memory with the
// others of their host. all_reduce, broadcast, all_gather(_v) and barrier that leave the choice of
// the algorithm to the communicator ("auto"), or say "two_level", go through memory inside hosts
// and by messages between them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/plan/path.h"
#include "collectives/schedules/nodes.h"
#include "collectives/shm/setup.h"
#include "collectives/shm/two_level_stages.h"

namespace gradwire {

class TwoLevelPath final : public CallPath {
 public:
  // Collective. here: the hosts of the group's ranks, several, of which some have several. Null
  // where a host has no memory for a board.
  static Result<std::unique_ptr<CallPath>> create(const GroupMembers& members,
                                                  const std::shared_ptr<const SharedHosts>& hosts,
                                                  const Nodes& here);

  bool serves(const OpCall& call, const OpOptions& options) const override;
  Result<std::optional<std::string_view>> algorithm_for(OpKind kind, std::int64_t bytes,
                                                        std::string_view wanted) override;
  Result<std::unique_ptr<PreparedCall>> prepare(const CheckedCall& call) override;
  void use_new_links() override { stages_.use_new_links(); }
  std::string describe() const override;
  std::uint64_t job_bytes() const override;
  std::optional<Buffer> allocate(std::size_t bytes) override;
  SharedMemory shared_memory() const override { return SharedMemory::kInsideHosts; }
  Result<std::unique_ptr<CallPath>> for_group(const GroupMembers& part) override;
  Result<std::unique_ptr<CallPath>> for_survivors(const GroupMembers& left) override;

 private:
  class Run;

  TwoLevelPath(Group& group, std::shared_ptr<const SharedHosts> hosts, TwoLevelStages stages);
  bool serves(const OpCall& call, std::string_view wanted) const;

  Group& group_;
  std::shared_ptr<const SharedHosts> hosts_;
  TwoLevelStages stages_;
};

}  // namespace gradwire
