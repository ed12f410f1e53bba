#include "collectives/sharing_communicator.h"

#include <utility>

namespace gradwire {

TransportStats SharingCommunicator::transport_stats() const {
  TransportStats stats = group_->transport_stats();
  if (hosts_->boards) {
    stats.bytes_sent += hosts_->boards->total_bytes().load(std::memory_order_relaxed);
  }
  return stats;
}

std::uint64_t SharingCommunicator::bytes_sent() const {
  return group_->bytes_sent() + bytes_->load(std::memory_order_relaxed);
}

Result<Buffer> SharingCommunicator::allocate(std::size_t bytes) {
  if (hosts_->boards) {
    auto shared = hosts_->boards->arena().allocate(bytes);
    if (shared.has_value()) return shared;
  }
  return Buffer::allocate(bytes);
}

Result<std::unique_ptr<Communicator>> SharingCommunicator::shrink(
    std::optional<Deadline> deadline) {
  GW_ASSIGN(auto left, group_->shrink(deadline));
  std::unique_ptr<GroupCommunicator> group(static_cast<GroupCommunicator*>(left.release()));
  auto shared = share_memory(group, hosts_->most_bytes);
  // Where somebody else was lost meanwhile the group has failed: as ever, the next operation says
  // so, and shrink() may follow. What leaves the group as it was nobody else would tell.
  if (shared.has_value() || group->status().ok()) return shared;
  return std::unique_ptr<Communicator>(std::move(group));
}

Result<std::unique_ptr<Communicator>> SharingCommunicator::split(int color, int key) {
  GW_ASSIGN(auto part, group_->split(color, key));
  if (part == nullptr) return part;
  std::unique_ptr<GroupCommunicator> group(static_cast<GroupCommunicator*>(part.release()));
  return over_hosts(group, hosts_);
}

}  // namespace gradwire
