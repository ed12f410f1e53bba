#include "collectives/shm/memory_path.h"

#include <utility>
#include <vector>

#include "base/elements.h"
#include "collectives/schedules/op_traits.h"
#include "collectives/shm/memory_run.h"

namespace gradwire {
namespace {

// Whatever its size: fresh pages of the segment cost much.
constexpr std::size_t kAnySize = ~std::size_t{0};

ShmCall call_in_memory(const CheckedCall& checked, const Operated& operated, int size) {
  const OpCall& call = checked.call;
  const OpTraits traits = traits_of(call.kind);
  const std::int64_t agreed = checked.extent.agreed;
  ShmCall memory{.kind = call.kind,
                 .dtype = checked.extent.dtype,
                 .op = call.op,
                 .in = operated.in,
                 .out = operated.out,
                 .elems = call.kind == OpKind::kAllToAll ? agreed / size : agreed,
                 .root = traits.rooted ? call.peer : 0};
  if (traits.counted) memory.lengths.assign(call.counts.begin(), call.counts.end());
  return memory;
}

// In the segment, where it has any left.
Result<Buffer> allocate_shared(ShmBoards& boards, std::size_t bytes) {
  auto shared = boards.arena().allocate(bytes);
  return shared.has_value() ? std::move(shared) : Buffer::allocate(bytes);
}

}  // namespace

MemoryPath::MemoryPath(Group& group, std::shared_ptr<const SharedHosts> hosts,
                       std::shared_ptr<ShmChannel> channel)
    : group_(group),
      hosts_(std::move(hosts)),
      channel_(std::move(channel)),
      memory_(std::make_shared<OwnMemory>(
          ScratchPool([boards = hosts_->boards](std::size_t bytes,
                                                Device) { return allocate_shared(*boards, bytes); },
                      kAnySize))),
      lend_([this](std::size_t bytes, Device device) { return memory_->lend(bytes, device); }) {}

MemoryPath::~MemoryPath() {
  if (!group_.engine()->has_failed()) channel_->close();
}

Result<std::unique_ptr<CallPath>> MemoryPath::create(
    const GroupMembers& members, const std::shared_ptr<const SharedHosts>& hosts) {
  Group& group = members.group;
  const std::shared_ptr<ShmBoards>& boards = hosts->boards;
  std::int64_t offset = -1;
  if (group.rank() == 0) {
    const auto made = boards->make(group.size());
    if (made.has_value()) offset = static_cast<std::int64_t>(made.value());
  }
  GW_ASSIGN(Work work, members.communicator.broadcast(view_of(std::span(&offset, 1)), 0));
  GW_TRY(work.wait());
  if (offset < 0) return std::unique_ptr<CallPath>();
  std::vector<int> places;
  for (int r = 0; r < group.size(); ++r) places.push_back(boards->arena_rank(group.job_rank(r)));
  auto channel = std::make_shared<ShmChannel>(boards, static_cast<std::uint64_t>(offset),
                                              std::move(places), group.rank());
  return std::unique_ptr<CallPath>(new MemoryPath(group, hosts, std::move(channel)));
}

// The communicator's own choice of an algorithm is for all_reduce and reduce_scatter alone.
bool MemoryPath::serves(OpKind kind, std::string_view algorithm) const {
  if (kind == OpKind::kSend || kind == OpKind::kRecv || kind == OpKind::kAllToAllV) return false;
  const OpKind base = traits_of(kind).base;
  const bool has_default = base == OpKind::kAllReduce || base == OpKind::kReduceScatter;
  if (has_default && algorithm == "auto") algorithm = group_.options().algorithm;
  return algorithm == "auto" || algorithm == kShmAlgorithm ||
         (has_default && algorithm == "canonical");
}

bool MemoryPath::serves(const OpCall& call, const OpOptions& options) const {
  return !names_device(call, options) && serves(call.kind, options.algorithm);
}

Result<std::optional<std::string_view>> MemoryPath::algorithm_for(OpKind kind, std::int64_t,
                                                                  std::string_view wanted) {
  return serves(kind, wanted) ? std::optional(kShmAlgorithm) : std::nullopt;
}

Result<std::unique_ptr<PreparedCall>> MemoryPath::prepare(const CheckedCall& call) {
  GW_ASSIGN(Operated operated, operated_of(call, call.options.stream, lend_));
  ShmCall memory = call_in_memory(call, operated, group_.size());
  return std::unique_ptr<PreparedCall>(
      std::make_unique<MemoryRun>(group_, channel_, next_, std::move(memory), std::move(operated)));
}

Result<Work> MemoryPath::start(const CheckedCall& call) {
  GW_ASSIGN(Operated operated, operated_of(call, call.options.stream, lend_));
  ShmCall memory = call_in_memory(call, operated, group_.size());
  return MemoryRun(group_, channel_, next_, std::move(memory), std::move(operated))
      .start_alone(call.options.deadline);
}

std::uint64_t MemoryPath::job_bytes() const {
  return hosts_->boards->total_bytes().load(std::memory_order_relaxed);
}

std::optional<Buffer> MemoryPath::allocate(std::size_t bytes) {
  auto shared = hosts_->boards->arena().allocate(bytes);
  return shared.has_value() ? std::optional(std::move(shared).value()) : std::nullopt;
}

Result<std::unique_ptr<CallPath>> MemoryPath::for_group(const GroupMembers& part) {
  return path_over_hosts(part, hosts_);
}

Result<std::unique_ptr<CallPath>> MemoryPath::for_survivors(const GroupMembers& left) {
  return share_memory(left, hosts_->most_bytes);
}

}  // namespace gradwire
