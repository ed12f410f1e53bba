#include "collectives/shm/two_level_path.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "collectives/engine/staged_execution.h"
#include "collectives/schedules/in_place.h"
#include "collectives/schedules/schedules.h"
#include "collectives/schedules/selection.h"
#include "collectives/shm/execution.h"

namespace gradwire {
namespace {

// Up to so many bytes one rank of a host talks for all: a message of a part costs as much as one of
// the whole.
constexpr std::int64_t kOnePartBytes = 16 << 10;
// Of a part of a piece, what every host has to reduce, at least: messages of much less cost more
// than the overlap saves.
constexpr std::int64_t kPieceBytes = 256 << 10;
// Tag channels of a piece. All of those in flight have room beside each other.
constexpr int kSlotsOfPiece = 4;

std::size_t index(int i) { return static_cast<std::size_t>(i); }

bool consecutive(const Nodes& nodes) { return std::ranges::is_sorted(nodes.node_of); }

AlgorithmChoice choice_between(const Group& group, int hosts) {
  return {hosts, group.links(), static_cast<std::int64_t>(group.segmentation().segment_bytes)};
}

std::vector<int> jobs_of(const Group& group, const std::vector<int>& ranks) {
  std::vector<int> jobs;
  for (const int r : ranks) jobs.push_back(group.job_rank(r));
  return jobs;
}

// Elements before those of `at`.
std::int64_t begin_of(const std::vector<std::int64_t>& lengths, int at) {
  return std::accumulate(lengths.begin(), lengths.begin() + at, std::int64_t{0});
}

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
    const auto made = hosts.boards->make(layout.bytes(), layout.channels());
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

// A collective among one rank of every host.
struct TwoLevelStages::Between {
  OpKind collective = OpKind::kAllReduce;
  std::vector<int> ranks = {};  // of the group, by host
  std::int64_t elems = 0;
  std::vector<std::int64_t> counts = {};  // all_gather: by host
  int root = 0;                           // broadcast: a host
  int lane = 0;
  DType dtype = DType::kU8;
  Operands operands = {};
};

TwoLevelStages::TwoLevelStages(Group& group, Nodes hosts, std::shared_ptr<ShmChannel> inward,
                               std::shared_ptr<ShmChannel> outward)
    : group_(group),
      hosts_(std::move(hosts)),
      host_(hosts_.node_of[index(group.rank())]),
      place_(hosts_.place_of[index(group.rank())]),
      consecutive_(consecutive(hosts_)),
      inward_(std::move(inward)),
      outward_(std::move(outward)),
      local_jobs_(
          std::make_shared<const std::vector<int>>(jobs_of(group, hosts_.ranks[index(host_)]))),
      choice_(choice_between(group, this->hosts())) {}

const std::vector<int>& TwoLevelStages::local() const { return hosts_.ranks[index(host_)]; }

void TwoLevelStages::use_new_links() { choice_ = choice_between(group_, hosts()); }

bool TwoLevelStages::covers(const OpCall& call) const {
  switch (call.kind) {
    // Factors differ between ranks.
    case OpKind::kAllReduce: return call.op != ReduceOp::kPreMulSum;
    case OpKind::kBroadcast:
    case OpKind::kBarrier: return true;
    case OpKind::kAllGather:
    case OpKind::kAllGatherV: return consecutive_;
    default: return false;
  }
}

std::vector<TwoLevelStages::Stages> TwoLevelStages::make(const OpCall& call, const Extent& extent,
                                                         std::uint64_t number) {
  std::vector<Stages> made;
  switch (call.kind) {
    case OpKind::kAllReduce:
      for (const Piece& piece : pieces_of(call, extent, number, hosts_.smallest())) {
        made.push_back(all_reduce(piece, call.op));
      }
      break;
    case OpKind::kBroadcast:
      for (const Piece& piece : pieces_of(call, extent, number, 1)) {
        made.push_back(broadcast(piece, call.peer));
      }
      break;
    case OpKind::kBarrier: made.push_back(barrier(number)); break;
    default: made.push_back(all_gather(call, extent, number)); break;
  }
  return made;
}

// parts: of a piece, that go between hosts side by side. The same on all ranks.
std::vector<TwoLevelStages::Piece> TwoLevelStages::pieces_of(const OpCall& call,
                                                             const Extent& extent,
                                                             std::uint64_t number,
                                                             int parts) const {
  const std::size_t width = size_of(extent.dtype);
  const std::int64_t bytes = extent.out * static_cast<std::int64_t>(width);
  const auto count = static_cast<int>(
      std::max<std::int64_t>(1, bytes / (kPieceBytes * std::int64_t{hosts()} * parts)));
  std::vector<Piece> pieces;
  for (int k = 0; k < count; ++k) {
    const Range range = line_piece(extent.out, width, count, k);
    const std::size_t offset = static_cast<std::size_t>(range.begin) * width;
    const std::byte* in = call.in.data();
    pieces.push_back({.in = in == nullptr ? nullptr : in + offset,
                      .out = call.out.data() + offset,
                      .elems = range.size(),
                      .dtype = extent.dtype,
                      .number = number,
                      .lane = k % kPiecesInFlight});
  }
  return pieces;
}

// Of this host, by place; ranks beyond the parts have none.
std::vector<std::int64_t> TwoLevelStages::parts_of_tensor(std::int64_t elems,
                                                          std::size_t width) const {
  const bool few = elems * static_cast<std::int64_t>(width) <= kOnePartBytes;
  const int parts = few ? 1 : hosts_.smallest();
  std::vector<std::int64_t> lengths(local().size(), 0);
  for (int j = 0; j < parts; ++j) lengths[index(j)] = line_piece(elems, width, parts, j).size();
  return lengths;
}

void TwoLevelStages::add_inside(Stages& stages, bool inward, ShmCall call, std::uint64_t number) {
  if (inward_ == nullptr) return;
  const std::shared_ptr<ShmChannel>& channel = inward ? inward_ : outward_;
  const ShmMoves& moves = shm_moves_of(call.kind);
  auto stage = std::make_unique<ShmExecution>(*channel, moves, std::move(call), channel->next++);
  stage->hand_over(channel, group_.route_among(local_jobs_, number, DType::kU8));
  stages.push_back(std::move(stage));
}

void TwoLevelStages::add_between(Stages& stages, const Between& between, std::uint64_t number) {
  const auto width = static_cast<std::int64_t>(size_of(between.dtype));
  const bool rows = !between.counts.empty();
  const std::int64_t all = rows ? begin_of(between.counts, hosts()) : between.elems;
  const std::string_view algorithm = choice_.choose(between.collective, all * width, rows);
  Schedule schedule = make_schedule({.collective = between.collective,
                                     .algorithm = algorithm,
                                     .rank = host_,
                                     .size = hosts(),
                                     .elems = between.elems,
                                     .root = between.root,
                                     .counts = between.counts,
                                     .stretch_elems = kStretchBytes / width});
  if (rows) {
    const std::int64_t own = begin_of(between.counts, host_);
    if (between.operands.in == between.operands.out + own * width) {
      schedule = in_place(schedule, {between.counts[index(host_)], 0, own});
    }
  } else if (between.operands.in != between.operands.out) {
    schedule = out_of_place(std::move(schedule));
  }
  Segmentation segmentation = group_.segmentation();
  const std::int64_t segment = choice_.segment_bytes(between.collective, all * width, algorithm);
  if (segment > 0) {
    segmentation.segment_bytes = segmentation.least_segment_bytes =
        std::min(segmentation.segment_bytes, static_cast<std::size_t>(segment));
  }
  segmentation.slots = std::min(segmentation.slots, kSlotsOfPiece);
  auto jobs = std::make_shared<const std::vector<int>>(jobs_of(group_, between.ranks));
  Route route = group_.route_among(std::move(jobs), number, between.dtype);
  route.first_channel += static_cast<std::uint32_t>(between.lane * kSlotsOfPiece);
  auto layout = std::make_shared<const Layout>(std::move(schedule), between.dtype, segmentation);
  stages.push_back(
      std::make_unique<Execution>(std::move(layout), between.operands, std::move(route)));
}

TwoLevelStages::Stages TwoLevelStages::all_reduce(const Piece& piece, ReduceOp op) {
  const std::size_t width = size_of(piece.dtype);
  const std::vector<std::int64_t> lengths = parts_of_tensor(piece.elems, width);
  const std::int64_t own = lengths[index(place_)];
  const auto begin = static_cast<std::size_t>(begin_of(lengths, place_)) * width;
  const bool alone = inward_ == nullptr;
  Stages stages;
  // The mean is taken once all ranks' values are together.
  add_inside(stages, true,
             {.kind = OpKind::kReduceScatterV,
              .dtype = piece.dtype,
              .op = op == ReduceOp::kMean ? ReduceOp::kSum : op,
              .in = piece.in,
              .out = piece.out + begin,
              .elems = piece.elems,
              .lengths = lengths},
             piece.number);
  if (own > 0 || (piece.elems == 0 && place_ == 0)) {
    Between between{.elems = own, .lane = piece.lane, .dtype = piece.dtype};
    for (const auto& ranks : hosts_.ranks) between.ranks.push_back(ranks[index(place_)]);
    between.operands = {.in = alone ? piece.in : piece.out + begin,
                        .out = piece.out + begin,
                        .op = op,
                        .mean_of = group_.size()};
    add_between(stages, between, piece.number);
  }
  add_inside(stages, false,
             {.kind = OpKind::kAllGatherV,
              .dtype = piece.dtype,
              .in = piece.out + begin,
              .out = piece.out,
              .elems = piece.elems,
              .lengths = lengths},
             piece.number);
  return stages;
}

TwoLevelStages::Stages TwoLevelStages::broadcast(const Piece& piece, int root) {
  const int root_host = hosts_.node_of[index(root)];
  Between between{.collective = OpKind::kBroadcast,
                  .elems = piece.elems,
                  .root = root_host,
                  .lane = piece.lane,
                  .dtype = piece.dtype};
  for (const auto& ranks : hosts_.ranks) between.ranks.push_back(ranks[0]);
  between.ranks[index(root_host)] = root;
  between.operands = {.in = root == group_.rank() ? piece.in : piece.out, .out = piece.out};
  Stages stages;
  if (between.ranks[index(host_)] == group_.rank()) add_between(stages, between, piece.number);
  add_inside(stages, false,
             {.kind = OpKind::kBroadcast,
              .dtype = piece.dtype,
              .in = piece.out,
              .out = piece.out,
              .elems = piece.elems,
              .root = hosts_.place_of[index(between.ranks[index(host_)])]},
             piece.number);
  return stages;
}

TwoLevelStages::Stages TwoLevelStages::all_gather(const OpCall& call, const Extent& extent,
                                                  std::uint64_t number) {
  const std::size_t width = size_of(extent.dtype);
  const auto row = [&](int rank) {
    return call.counts.empty() ? extent.in : call.counts[index(rank)];
  };
  Between between{.collective = OpKind::kAllGather, .dtype = extent.dtype};
  for (const auto& ranks : hosts_.ranks) {
    between.ranks.push_back(ranks[0]);
    between.counts.push_back(0);
    for (const int r : ranks) between.counts.back() += row(r);
  }
  std::vector<std::int64_t> lengths;
  for (const int r : local()) lengths.push_back(row(r));
  const auto block = static_cast<std::size_t>(begin_of(between.counts, host_)) * width;
  const std::int64_t all = begin_of(between.counts, hosts());
  Stages stages;
  add_inside(stages, true,
             {.kind = OpKind::kAllGatherV,
              .dtype = extent.dtype,
              .in = call.in.data(),
              .out = call.out.data() + block,
              .elems = between.counts[index(host_)],
              .lengths = std::move(lengths)},
             number);
  const bool alone = inward_ == nullptr;
  between.operands = {.in = alone ? call.in.data() : call.out.data() + block,
                      .out = call.out.data()};
  if (place_ == 0) add_between(stages, between, number);
  add_inside(stages, false,
             {.kind = OpKind::kBroadcast,
              .dtype = extent.dtype,
              .in = call.out.data(),
              .out = call.out.data(),
              .elems = all},
             number);
  return stages;
}

TwoLevelStages::Stages TwoLevelStages::barrier(std::uint64_t number) {
  Stages stages;
  add_inside(stages, true, {}, number);
  Between between{.collective = OpKind::kBarrier};
  for (const auto& ranks : hosts_.ranks) between.ranks.push_back(ranks[0]);
  if (place_ == 0) add_between(stages, between, number);
  add_inside(stages, false, {}, number);
  return stages;
}

class TwoLevelPath::Run final : public PreparedCall {
 public:
  Run(Group& group, TwoLevelStages& stages, const CheckedCall& checked)
      : PreparedCall(group),
        stages_(stages),
        call_(checked.call),
        extent_(checked.extent),
        queue_(queue_of(checked)),
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
                              .queue = queue_,
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
  Queue queue_;
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
