// The path of two levels, for a group whose ranks are on several hosts and share memory with the
// others of their host. all_reduce, broadcast, all_gather(_v) and barrier that leave the choice of
// the algorithm to the communicator ("auto"), or say "two_level", go through memory inside hosts
// and by messages between them.
//
// What a rank does in an operation on several hosts whose ranks share memory: through memory with
// the ranks of its host, by messages with one rank of every host, through memory again.
//
//   all_reduce   the n elements are in as many parts as the smallest host has ranks, one part where
//                they are few. Rank j of a host folds part j of the host's tensors, a left fold in
//                rank order; the j-th ranks of all hosts reduce part j among themselves; everybody
//                takes the parts from the ranks of its host that have them.
//   broadcast    from the root to one rank of every other host, from there through memory
//   all_gather   inside the host, the first ranks exchange the hosts' rows, and tell theirs
//   barrier      the host's, that of the first ranks, the host's
//
// A tensor to reduce or to broadcast that is large goes so piece by piece, a few at a time: one
// travels between hosts while others are in memory.
//
// With N hosts of g ranks a part crosses 2(N-1)/N n/g elements from each rank; a flat ring 2(p-1)/p
// n. The order of a sum depends on ranks, hosts and n, never on timing.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "collectives/cost/choice.h"
#include "collectives/engine/staged_execution.h"
#include "collectives/plan/path.h"
#include "collectives/schedules/line_piece.h"
#include "collectives/schedules/schedules.h"
#include "collectives/schedules/selection.h"
#include "collectives/shm/execution.h"
#include "collectives/shm/setup.h"

namespace gradwire {
namespace {

// Up to so many bytes one rank of a host talks for all: a message of a part costs as much as one of
// the whole.
constexpr std::int64_t kOnePartBytes = 16 << 10;
// Of a part of a piece, what every host has to reduce, at least: messages of much less cost more
// than the overlap saves.
constexpr std::int64_t kPieceBytes = 256 << 10;
// So many pieces of a large tensor are under way at a time, on tag channels of their own: one on
// its way between hosts, one before it and one behind it in memory.
constexpr int kPiecesInFlight = 3;
// Tag channels of a piece. All of those in flight have room beside each other.
constexpr int kSlotsOfPiece = 4;

std::size_t index(int i) { return static_cast<std::size_t>(i); }

AlgorithmChoice choice_between(const Group& group, int hosts) {
  return {hosts, group.links(), static_cast<std::int64_t>(group.segmentation().segment_bytes)};
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
  const ShmLayout layout = ShmLayout::within(
      hosts.boards ? hosts.boards->arena().bytes_of_share() : 0,
      {std::begin(kHostQueues), std::end(kHostQueues)}, static_cast<int>(local.size()));
  std::array<std::int64_t, 1> own{0};
  if (here.place_of[self] == 0 && local.size() > 1) {
    const auto made = hosts.boards->make(layout.bytes(), layout.channels());
    own[0] = made.has_value() ? static_cast<std::int64_t>(made.value()) : -1;
  }
  GW_ASSIGN(const auto offsets, gather_numbers(group, own));
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

class TwoLevelPath final : public SharedPath {
 public:
  TwoLevelPath(Group& group, std::shared_ptr<const SharedHosts> hosts, Nodes here,
               const Channels& channels);

  bool serves(const OpCall& call, const OpOptions& options) const override {
    return !names_device(call, options) && serves(call, options.algorithm);
  }
  Result<std::optional<std::string_view>> algorithm_for(OpKind kind, std::int64_t,
                                                        std::string_view wanted) override {
    return serves({.kind = kind}, wanted) ? std::optional(kTwoLevel) : std::nullopt;
  }
  Result<std::unique_ptr<PreparedCall>> prepare(const CheckedCall& call) override;
  void use_new_links() override { choice_ = choice_between(group_, host_count()); }
  std::string describe() const override {
    return format("shared memory inside %d hosts", host_count());
  }
  SharedMemory shared_memory() const override { return SharedMemory::kInsideHosts; }

 private:
  class Run;
  using Stages = StagedExecution::Stages;
  // A collective among one rank of every host.
  struct Between {
    OpKind collective = OpKind::kAllReduce;
    std::vector<int> ranks = {};  // of the group, by host
    std::int64_t elems = 0;
    std::vector<std::int64_t> counts = {};  // all_gather: by host
    int root = 0;                           // broadcast: a host
    int lane = 0;
    DType dtype = DType::kU8;
    Operands operands = {};
  };
  // Of a tensor, and which messages are its own.
  struct Piece {
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    std::int64_t elems = 0;
    DType dtype = DType::kU8;
    std::uint64_t number = 0;  // of the operation
    int lane = 0;              // of the pieces in flight
  };

  // Whether such a call goes this way, the same on all ranks.
  bool serves(const OpCall& call, std::string_view wanted) const;
  bool covers(const OpCall& call) const;
  // By piece, of a call that is served. Ranks of a host call this in the same order.
  std::vector<Stages> make(const OpCall& call, const Extent& extent, std::uint64_t number);
  std::vector<Piece> pieces_of(const OpCall& call, const Extent& extent, std::uint64_t number,
                               int parts) const;
  Stages all_reduce(const Piece& piece, ReduceOp op);
  Stages broadcast(const Piece& piece, int root);
  Stages all_gather(const OpCall& call, const Extent& extent, std::uint64_t number);
  Stages barrier(std::uint64_t number);
  void add_inside(Stages& stages, bool inward, ShmCall call, std::uint64_t number);
  void add_between(Stages& stages, const Between& between, std::uint64_t number);
  std::vector<std::int64_t> parts_of_tensor(std::int64_t elems, std::size_t width) const;
  const std::vector<int>& local() const { return here_.ranks[index(host_)]; }
  int host_count() const { return static_cast<int>(here_.ranks.size()); }

  Nodes here_;  // the hosts of the group's ranks, at least two
  int host_;
  int place_;
  bool consecutive_;  // hosts have consecutive ranks
  std::shared_ptr<ShmChannel> inward_;
  std::shared_ptr<ShmChannel> outward_;
  std::shared_ptr<const std::vector<int>> local_jobs_;
  AlgorithmChoice choice_;
};

TwoLevelPath::TwoLevelPath(Group& group, std::shared_ptr<const SharedHosts> hosts, Nodes here,
                           const Channels& channels)
    : SharedPath(group, std::move(hosts)),
      here_(std::move(here)),
      host_(here_.node_of[index(group.rank())]),
      place_(here_.place_of[index(group.rank())]),
      consecutive_(std::ranges::is_sorted(here_.node_of)),
      inward_(channels[0]),
      outward_(channels[1]),
      local_jobs_(std::make_shared<const std::vector<int>>(group.job_ranks_of(local()))),
      choice_(choice_between(group, host_count())) {}

bool TwoLevelPath::covers(const OpCall& call) const {
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

std::vector<TwoLevelPath::Stages> TwoLevelPath::make(const OpCall& call, const Extent& extent,
                                                     std::uint64_t number) {
  std::vector<Stages> made;
  switch (call.kind) {
    case OpKind::kAllReduce:
      for (const Piece& piece : pieces_of(call, extent, number, here_.smallest())) {
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
std::vector<TwoLevelPath::Piece> TwoLevelPath::pieces_of(const OpCall& call, const Extent& extent,
                                                         std::uint64_t number, int parts) const {
  const std::size_t width = size_of(extent.dtype);
  const std::int64_t bytes = extent.out * static_cast<std::int64_t>(width);
  const auto count = static_cast<int>(
      std::max<std::int64_t>(1, bytes / (kPieceBytes * std::int64_t{host_count()} * parts)));
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
std::vector<std::int64_t> TwoLevelPath::parts_of_tensor(std::int64_t elems,
                                                        std::size_t width) const {
  const bool few = elems * static_cast<std::int64_t>(width) <= kOnePartBytes;
  const int parts = few ? 1 : here_.smallest();
  std::vector<std::int64_t> lengths(local().size(), 0);
  for (int j = 0; j < parts; ++j) lengths[index(j)] = line_piece(elems, width, parts, j).size();
  return lengths;
}

void TwoLevelPath::add_inside(Stages& stages, bool inward, ShmCall call, std::uint64_t number) {
  if (inward_ == nullptr) return;
  const std::shared_ptr<ShmChannel>& channel = inward ? inward_ : outward_;
  const ShmMoves& moves = shm_moves_of(call.kind);
  auto stage = std::make_unique<ShmExecution>(*channel, moves, std::move(call), channel->next++);
  stage->hand_over(channel, group_.route_among(local_jobs_, number, DType::kU8));
  stages.push_back(std::move(stage));
}

void TwoLevelPath::add_between(Stages& stages, const Between& between, std::uint64_t number) {
  const auto width = static_cast<std::int64_t>(size_of(between.dtype));
  const bool rows = !between.counts.empty();
  const std::int64_t all = rows ? begin_of(between.counts, host_count()) : between.elems;
  const std::string_view algorithm = choice_.choose(between.collective, all * width, rows);
  Schedule schedule = make_schedule({.collective = between.collective,
                                     .algorithm = algorithm,
                                     .rank = host_,
                                     .size = host_count(),
                                     .elems = between.elems,
                                     .root = between.root,
                                     .counts = between.counts,
                                     .stretch_elems = kStretchBytes / width});
  const std::int64_t own = rows ? begin_of(between.counts, host_) : 0;
  const bool there = rows && between.operands.in == between.operands.out + own * width;
  const SharedElems shared{there ? between.counts[index(host_)] : 0, 0, own};
  Segmentation segmentation = group_.segmentation();
  segmentation.slots = std::min(segmentation.slots, kSlotsOfPiece);
  auto jobs = std::make_shared<const std::vector<int>>(group_.job_ranks_of(between.ranks));
  Route route = group_.route_among(std::move(jobs), number, between.dtype);
  route.first_channel += static_cast<std::uint32_t>(between.lane * kSlotsOfPiece);
  auto layout = lay_out(std::move(schedule), between.operands.in != between.operands.out, shared,
                        between.dtype, segmentation,
                        choice_.segment_bytes(between.collective, all * width, algorithm));
  stages.push_back(
      std::make_unique<Execution>(std::move(layout), between.operands, std::move(route)));
}

TwoLevelPath::Stages TwoLevelPath::all_reduce(const Piece& piece, ReduceOp op) {
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
    for (const auto& ranks : here_.ranks) between.ranks.push_back(ranks[index(place_)]);
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

TwoLevelPath::Stages TwoLevelPath::broadcast(const Piece& piece, int root) {
  const int root_host = here_.node_of[index(root)];
  Between between{.collective = OpKind::kBroadcast,
                  .elems = piece.elems,
                  .root = root_host,
                  .lane = piece.lane,
                  .dtype = piece.dtype};
  for (const auto& ranks : here_.ranks) between.ranks.push_back(ranks[0]);
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
              .root = here_.place_of[index(between.ranks[index(host_)])]},
             piece.number);
  return stages;
}

TwoLevelPath::Stages TwoLevelPath::all_gather(const OpCall& call, const Extent& extent,
                                              std::uint64_t number) {
  const std::size_t width = size_of(extent.dtype);
  const auto row = [&](int rank) {
    return call.counts.empty() ? extent.in : call.counts[index(rank)];
  };
  Between between{.collective = OpKind::kAllGather, .dtype = extent.dtype};
  for (const auto& ranks : here_.ranks) {
    between.ranks.push_back(ranks[0]);
    between.counts.push_back(0);
    for (const int r : ranks) between.counts.back() += row(r);
  }
  std::vector<std::int64_t> lengths;
  for (const int r : local()) lengths.push_back(row(r));
  const auto block = static_cast<std::size_t>(begin_of(between.counts, host_)) * width;
  const std::int64_t all = begin_of(between.counts, host_count());
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

TwoLevelPath::Stages TwoLevelPath::barrier(std::uint64_t number) {
  Stages stages;
  add_inside(stages, true, {}, number);
  Between between{.collective = OpKind::kBarrier};
  for (const auto& ranks : here_.ranks) between.ranks.push_back(ranks[0]);
  if (place_ == 0) add_between(stages, between, number);
  add_inside(stages, false, {}, number);
  return stages;
}

class TwoLevelPath::Run final : public PreparedCall {
 public:
  Run(TwoLevelPath& path, const CheckedCall& checked)
      : PreparedCall(path.group_), path_(path), kept_(checked), queue_(queue_of(checked)) {}

  Status start(const std::shared_ptr<WorkState>& work,
               const std::optional<Deadline>& deadline) override {
    const OpCall& call = kept_.call;
    const Extent& extent = kept_.extent;
    const std::uint64_t number = group().take_number();
    return group().engine()->submit(std::make_unique<Operation>(Operation{
        .signature = signature_of(call.kind, extent.dtype, call.op, extent.agreed, call.peer),
        .number = number,
        .algorithm = kTwoLevel,
        .queue = queue_,
        .deadline = group().end_of(deadline),
        .execution = std::make_unique<StagedExecution>(
            group().route_of(number), path_.make(call, extent, number), kPiecesInFlight),
        .work = work,
        .bytes_sent = group().other_bytes()}));
  }

 private:
  TwoLevelPath& path_;
  KeptCall kept_;
  Queue queue_;
};

bool TwoLevelPath::serves(const OpCall& call, std::string_view wanted) const {
  if (call.kind == OpKind::kAllReduce && wanted == "auto") wanted = group_.options().algorithm;
  return (wanted == "auto" || wanted == kTwoLevel) && covers(call);
}

Result<std::unique_ptr<PreparedCall>> TwoLevelPath::prepare(const CheckedCall& call) {
  return std::unique_ptr<PreparedCall>(std::make_unique<Run>(*this, call));
}

}  // namespace

Result<std::unique_ptr<CallPath>> two_level_path(const GroupMembers& members,
                                                 const std::shared_ptr<const SharedHosts>& hosts,
                                                 const Nodes& here) {
  GW_ASSIGN(const std::optional<Channels> channels,
            make_channels(members.communicator, *hosts, here));
  if (!channels) return std::unique_ptr<CallPath>();
  return std::unique_ptr<CallPath>(
      std::make_unique<TwoLevelPath>(members.group, hosts, here, *channels));
}

}  // namespace gradwire
