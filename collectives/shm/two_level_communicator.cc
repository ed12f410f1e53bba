#include "collectives/shm/two_level_communicator.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "base/elements.h"
#include "base/text.h"
#include "collectives/engine/staged_execution.h"

namespace gradwire {
namespace {

constexpr std::string_view kTwoLevel = "two_level";

// This rank's ends of its host's boards; null where it is alone there.
struct Channels {
  std::shared_ptr<ShmChannel> inward;
  std::shared_ptr<ShmChannel> outward;
};

// Nothing where a host has no room for its boards.
Result<std::optional<Channels>> make_channels(Communicator& group, const SharedHosts& hosts,
                                              const Nodes& here) {
  const auto self = static_cast<std::size_t>(group.rank());
  const auto& local = here.ranks[static_cast<std::size_t>(here.node_of[self])];
  std::array<std::int64_t, 2> own{0, 0};
  if (here.place_of[self] == 0 && local.size() > 1) {
    for (std::int64_t& offset : own) {
      const auto made = hosts.boards->make(static_cast<int>(local.size()));
      offset = made.has_value() ? static_cast<std::int64_t>(made.value()) : -1;
    }
  }
  std::vector<std::int64_t> offsets(2 * static_cast<std::size_t>(group.size()));
  GW_ASSIGN(Work work, group.all_gather(const_view_of(std::span<const std::int64_t>(own)),
                                        view_of(std::span(offsets))));
  GW_TRY(work.wait());
  if (std::ranges::min(offsets) < 0) return std::optional<Channels>();
  if (local.size() == 1) return std::optional(Channels());
  std::vector<int> members;
  for (const int r : local) members.push_back(hosts.boards->arena_rank(group.job_rank(r)));
  const auto channel = [&](std::size_t which) {
    const auto offset = offsets[2 * static_cast<std::size_t>(local[0]) + which];
    return std::make_shared<ShmChannel>(hosts.boards, static_cast<std::uint64_t>(offset), members,
                                        here.place_of[self]);
  };
  return std::optional(Channels{channel(0), channel(1)});
}

bool is_all_reduce(OpKind kind) { return kind == OpKind::kAllReduce; }

}  // namespace

Result<std::unique_ptr<Communicator>> TwoLevelCommunicator::create(
    std::unique_ptr<GroupCommunicator>& group, const std::shared_ptr<const SharedHosts>& hosts,
    const Nodes& here) {
  GW_ASSIGN(const std::optional<Channels> channels, make_channels(*group, *hosts, here));
  if (!channels) return std::unique_ptr<Communicator>(std::move(group));
  TwoLevelStages stages(*group, here, channels->inward, channels->outward);
  return std::unique_ptr<Communicator>(
      new TwoLevelCommunicator(std::move(group), hosts, std::move(stages)));
}

TwoLevelCommunicator::TwoLevelCommunicator(std::unique_ptr<GroupCommunicator> group,
                                           std::shared_ptr<const SharedHosts> hosts,
                                           TwoLevelStages stages)
    : SharingCommunicator(std::move(group), std::move(hosts)), stages_(std::move(stages)) {}

std::string TwoLevelCommunicator::describe() const {
  return group_->describe() + format("; shared memory inside %d hosts", stages_.hosts());
}

void TwoLevelCommunicator::set_link_parameters(const LinkModel& links) {
  group_->set_link_parameters(links);
  stages_.use_new_links();
}

bool TwoLevelCommunicator::by_two_levels(const OpCall& call, std::string_view wanted) const {
  if (is_all_reduce(call.kind) && wanted == "auto") wanted = group_->options().algorithm;
  return (wanted == "auto" || wanted == kTwoLevel) && stages_.covers(call);
}

Result<std::string_view> TwoLevelCommunicator::algorithm_for(OpKind kind, std::int64_t bytes,
                                                             std::string_view wanted) {
  if (by_two_levels({.kind = kind}, wanted)) return kTwoLevel;
  return group_->algorithm_for(kind, bytes, wanted);
}

Result<Work> TwoLevelCommunicator::launch(const OpCall& call, const Extent& extent,
                                          std::optional<Deadline> deadline) {
  GW_TRY(group_->status());
  const std::uint64_t number = group_->take_number();
  auto work = std::make_shared<WorkState>(group_->engine());
  Operation operation{
      .name = to_string(call.kind),
      .number = number,
      .dtype = to_string(extent.dtype),
      .elems = extent.agreed,
      .reduce = is_all_reduce(call.kind) ? to_string(call.op) : std::string_view(),
      .root = call.kind == OpKind::kBroadcast ? call.peer : -1,
      .algorithm = kTwoLevel,
      .started = std::chrono::steady_clock::now(),
      .deadline = deadline.value_or(deadline_in(group_->options().deadline_seconds)),
      .execution = std::make_unique<StagedExecution>(group_->route_of(number),
                                                     stages_.make(call, extent, number),
                                                     TwoLevelStages::kPiecesInFlight),
      .work = work,
      .bytes_sent = bytes_};
  GW_TRY(group_->engine()->submit(std::make_unique<Operation>(std::move(operation))));
  return Work(std::move(work));
}

Result<Work> TwoLevelCommunicator::start(const OpCall& call, const OpOptions& options) {
  if (!by_two_levels(call, options.algorithm) || names_device(call, options)) {
    return group_->start(call, options);
  }
  GW_ASSIGN(const Extent extent, check_call(call, options, rank(), size()));
  return launch(call, extent, options.deadline);
}

Result<Work> TwoLevelCommunicator::start_all(std::span<const OpCall> calls,
                                             const OpOptions& options) {
  if (calls.size() == 1) return start(calls.front(), options);
  return group_->start_all(calls, options);
}

Result<PersistentWork> TwoLevelCommunicator::prepare(const OpCall& call, const OpOptions& options) {
  if (!by_two_levels(call, options.algorithm) || names_device(call, options) || options.deadline) {
    return group_->prepare(call, options);
  }
  GW_ASSIGN(const Extent extent, check_call(call, options, rank(), size()));
  // The caller's counts need not last.
  return PersistentWork(
      [this, call, extent, counts = std::vector(call.counts.begin(), call.counts.end())]() mutable {
        OpCall again = call;
        again.counts = counts;
        return launch(again, extent, std::nullopt);
      });
}

bool shares_memory_inside(const Communicator& communicator) {
  return dynamic_cast<const TwoLevelCommunicator*>(&communicator) != nullptr;
}

}  // namespace gradwire
