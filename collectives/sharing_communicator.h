// What communicators whose ranks share memory have in common: the ranks, the failures and the
// messages are those of a communicator below, memory comes from the host's arena, and what goes
// through it is counted beside the messages.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "collectives/bounded.h"
#include "collectives/group_communicator.h"
#include "collectives/shm/setup.h"
#include "gradwire/communicator.h"

namespace gradwire {

class SharingCommunicator : public Communicator, public Bounded {
 public:
  int rank() const final { return group_->rank(); }
  int size() const final { return group_->size(); }
  int job_rank(int r) const final { return group_->job_rank(r); }
  Status status() const final { return group_->status(); }
  TransportStats transport_stats() const final;
  std::uint64_t bytes_sent() const final;
  double deadline_seconds() const final { return group_->deadline_seconds(); }
  std::vector<int> nodes() const final { return group_->nodes(); }
  LinkModel links() const final { return group_->links(); }
  void set_link_parameters(const LinkModel& links) override { group_->set_link_parameters(links); }

  void abort(std::string_view reason) final { group_->abort(reason); }
  // The survivors share memory anew: other ranks may still write into what there was. `deadline`
  // bounds their agreement; what they say of memory then has the communicator's own.
  Result<std::unique_ptr<Communicator>> shrink(std::optional<Deadline> deadline) final;
  Result<int> probe(int peer, int tag, Deadline until) final {
    return group_->probe(peer, tag, until);
  }
  Result<Buffer> allocate(std::size_t bytes) final;
  Result<std::unique_ptr<Communicator>> split(int color, int key) final;

 protected:
  SharingCommunicator(std::unique_ptr<GroupCommunicator> group,
                      std::shared_ptr<const SharedHosts> hosts)
      : group_(std::move(group)),
        hosts_(std::move(hosts)),
        bytes_(std::make_shared<std::atomic<std::uint64_t>>(0)) {}

  const std::unique_ptr<GroupCommunicator> group_;
  const std::shared_ptr<const SharedHosts> hosts_;
  const std::shared_ptr<std::atomic<std::uint64_t>> bytes_;  // of what does not go by group_ alone
};

}  // namespace gradwire
