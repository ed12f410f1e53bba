// How the ranks of a job come to share memory, host by host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/plan/path.h"
#include "collectives/schedules/schedules.h"
#include "collectives/shm/channel.h"
#include "gradwire/communicator.h"

namespace gradwire {

// The same for all communicators of one rank.
struct SharedHosts {
  std::vector<int> host_of;           // by job rank, any numbers
  std::shared_ptr<ShmBoards> boards;  // of this rank's host; null where it is alone
  std::size_t most_bytes = 0;         // as share_memory() has it
  bool messages = false;  // whether sends and receives between this host's ranks go through memory
};

// Collective over a group that is a whole job, or what is left of one. Ranks that are on one
// host, and on one node where nodes were given, share memory if the system lets all of them: the
// path that uses it. Else null, and the group notes why. most_bytes: of a host's memory,
// 0 for half of it.
Result<std::unique_ptr<CallPath>> share_memory(const GroupMembers& world, std::size_t most_bytes);

// Collective over a group of such a job: through memory where its ranks are on one host, by two
// levels where some share one, null elsewhere and where memory is used up.
Result<std::unique_ptr<CallPath>> path_over_hosts(const GroupMembers& group,
                                                  const std::shared_ptr<const SharedHosts>& hosts);

// What the paths through memory have in common.
class SharedPath : public CallPath {
 public:
  SharedPath(Group& group, std::shared_ptr<const SharedHosts> hosts)
      : group_(group), hosts_(std::move(hosts)) {}

  std::uint64_t job_bytes() const override {
    return hosts_->boards ? hosts_->boards->all_bytes() : 0;
  }
  std::optional<Buffer> allocate(std::size_t bytes) override {
    if (!hosts_->boards) return std::nullopt;
    auto shared = hosts_->boards->arena().allocate(bytes);
    return shared.has_value() ? std::optional(std::move(shared).value()) : std::nullopt;
  }
  Result<std::unique_ptr<CallPath>> for_group(const GroupMembers& part) override {
    return path_over_hosts(part, hosts_);
  }
  Result<std::unique_ptr<CallPath>> for_survivors(const GroupMembers& left) override {
    return share_memory(left, hosts_->most_bytes);
  }

 protected:
  Group& group_;
  std::shared_ptr<const SharedHosts> hosts_;
};

// Collective: the path of two levels (two_level_path.cc). here: the hosts of the group's ranks,
// several, of which some have several. Null where a host has no memory for a board.
Result<std::unique_ptr<CallPath>> two_level_path(const GroupMembers& group,
                                                 const std::shared_ptr<const SharedHosts>& hosts,
                                                 const Nodes& here);

}  // namespace gradwire
