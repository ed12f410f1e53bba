#include "collectives/shm/two_level_path.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "collectives/engine/staged_execution.h"

namespace gradwire {
namespace {

constexpr std::string_view kTwoLevel = "two_level";

// Operations alternate between two queues: what goes into a host's memory, and what comes out.
constexpr ShmQueue kHostQueues[] = {{.small_bytes = 32 << 10, .slot_bytes = 256 << 10},
                                    {.small_bytes = 32 << 10, .slot_bytes = 256 << 10}};

// This rank's ends of its host's board; null where it is alone there.
using Channels = std::array<std::shared_ptr<ShmChannel>, 2>;

// Nothing where a host has no room for its board.
Result<std::optional<Channels>> make_channels(Communicator& group, const SharedHosts& hosts,
                                              const Nodes& here) {
  const auto self = static_cast<std::size_t>(group.rank());
  const auto& local = here.ranks[static_cast<std::size_t>(here.node_of[self])];
  const ShmLayout layout{kHostQueues, static_cast<int>(local.size())};
  std::array<std::int64_t, 1> own{0};
  if (here.place_of[self] == 0 && local.size() > 1) {
    const auto made = hosts.boards->make(layout);
    own[0] = made.has_value() ? static_cast<std::int64_t>(made.value()) : -1;
  }
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(group.size()));
  GW_ASSIGN(Work work, group.all_gather(const_view_of(std::span<const std::int64_t>(own)),
                                        view_of(std::span(offsets))));
  GW_TRY(work.wait());
  if (std::ranges::min(offsets) < 0) return std::optional<Channels>();
  Channels channels;
  if (local.size() == 1) return std::optional(channels);
  std::vector<int> members;
  for (const int r : local) members.push_back(hosts.boards->arena_rank(group.job_rank(r)));
  const auto offset = static_cast<std::uint64_t>(offsets[static_cast<std::size_t>(local[0])]);
  for (std::size_t queue = 0; queue < channels.size(); ++queue) {
    channels[queue] = std::make_shared<ShmChannel>(hosts.boards, offset, layout, queue, members,
                                                   here.place_of[self]);
  }
  return std::optional(channels);
}

}  // namespace

class TwoLevelPath::Run final : public PreparedCall {
 public:
  Run(Group& group, TwoLevelStages& stages, const CheckedCall& checked)
      : PreparedCall(group),
        stages_(stages),
        call_(checked.call),
        extent_(checked.extent),
        counts_(checked.call.counts.begin(), checked.call.counts.end()) {
    call_.counts = counts_;
  }

  Status start(const std::shared_ptr<WorkState>& work, std::optional<Deadline> deadline) override {
    const std::uint64_t number = group().take_number();
    return group().submit(std::make_unique<Operation>(Operation{
                              .signature = signature_of(call_.kind, extent_.dtype, call_.op,
                                                        extent_.agreed, call_.peer),
                              .number = number,
                              .algorithm = kTwoLevel,
                              .execution = std::make_unique<StagedExecution>(
                                  group().route_of(number), stages_.make(call_, extent_, number),
                                  TwoLevelStages::kPiecesInFlight),
                              .work = work,
                              .bytes_sent = group().other_bytes()}),
                          deadline);
  }

 private:
  TwoLevelStages& stages_;
  OpCall call_;
  Extent extent_;
  std::vector<std::int64_t> counts_;
};

TwoLevelPath::TwoLevelPath(Group& group, std::shared_ptr<const SharedHosts> hosts,
                           TwoLevelStages stages)
    : group_(group), hosts_(std::move(hosts)), stages_(std::move(stages)) {}

Result<std::unique_ptr<CallPath>> TwoLevelPath::create(
    const GroupMembers& members, const std::shared_ptr<const SharedHosts>& hosts,
    const Nodes& here) {
  GW_ASSIGN(const std::optional<Channels> channels,
            make_channels(members.communicator, *hosts, here));
  if (!channels) return std::unique_ptr<CallPath>();
  TwoLevelStages stages(members.group, here, (*channels)[0], (*channels)[1]);
  return std::unique_ptr<CallPath>(new TwoLevelPath(members.group, hosts, std::move(stages)));
}

std::string TwoLevelPath::describe() const {
  return format("shared memory inside %d hosts", stages_.hosts());
}

bool TwoLevelPath::serves(const OpCall& call, std::string_view wanted) const {
  if (call.kind == OpKind::kAllReduce && wanted == "auto") wanted = group_.options().algorithm;
  return (wanted == "auto" || wanted == kTwoLevel) && stages_.covers(call);
}

bool TwoLevelPath::serves(const OpCall& call, const OpOptions& options) const {
  return !names_device(call, options) && serves(call, options.algorithm);
}

Result<std::optional<std::string_view>> TwoLevelPath::algorithm_for(OpKind kind, std::int64_t,
                                                                    std::string_view wanted) {
  return serves({.kind = kind}, wanted) ? std::optional(kTwoLevel) : std::nullopt;
}

Result<std::unique_ptr<PreparedCall>> TwoLevelPath::prepare(const CheckedCall& call) {
  return std::unique_ptr<PreparedCall>(std::make_unique<Run>(group_, stages_, call));
}

std::uint64_t TwoLevelPath::job_bytes() const {
  return hosts_->boards ? hosts_->boards->total_bytes().load(std::memory_order_relaxed) : 0;
}

std::optional<Buffer> TwoLevelPath::allocate(std::size_t bytes) {
  if (!hosts_->boards) return std::nullopt;
  auto shared = hosts_->boards->arena().allocate(bytes);
  return shared.has_value() ? std::optional(std::move(shared).value()) : std::nullopt;
}

Result<std::unique_ptr<CallPath>> TwoLevelPath::for_group(const GroupMembers& part) {
  return path_over_hosts(part, hosts_);
}

Result<std::unique_ptr<CallPath>> TwoLevelPath::for_survivors(const GroupMembers& left) {
  return share_memory(left, hosts_->most_bytes);
}

}  // namespace gradwire
