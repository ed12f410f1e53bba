#include "collectives/group_communicator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <new>
#include <utility>

#include "base/elements.h"
#include "base/hash.h"
#include "base/text.h"
#include "collectives/schedules/op_traits.h"
#include "collectives/schedules/selection.h"

namespace gradwire {

namespace {

constexpr double kRefusedEnd = 1;  // seconds, for the rest of a batch that an engine has refused

// "; CUDA device 0 through pinned memory", once there is one.
std::string devices_text(const ProgressEngine& engine) {
  std::string text;
  for (const int ordinal : engine.lanes()->ordinals()) {
    text += format("; CUDA device %d ", ordinal);
    text += engine.takes_cuda_memory()
                ? "in place where others can reach its memory, but sums through pinned memory"
                : "through pinned memory";
  }
  return text;
}

// "; 4 ranks on 2 nodes", where that says anything.
std::string nodes_text(const std::vector<int>& node_of) {
  const int nodes = node_of.empty() ? 0 : 1 + *std::ranges::max_element(node_of);
  if (nodes <= 1 || nodes == static_cast<int>(node_of.size())) return "";
  return format("; %zu ranks on %d nodes", node_of.size(), nodes);
}

Status check_members(const std::vector<int>& members, int rank, int size) {
  std::vector<int> sorted = members;
  std::ranges::sort(sorted);
  const auto refuse = [](const std::string& why) {
    return Status(Code::kInvalidArgument, "create_group: " + why);
  };
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] < 0 || sorted[i] >= size) {
      return refuse(format("rank %d (expected 0 to %d)", sorted[i], size - 1));
    }
    if (i > 0 && sorted[i] == sorted[i - 1]) {
      return refuse(format("rank %d twice (expected each rank once)", sorted[i]));
    }
  }
  if (std::ranges::binary_search(sorted, rank)) return {};
  return refuse(
      format("%zu ranks without this one, rank %d (expected it among them)", members.size(), rank));
}

// How some ranks of a group agree on a group of their own, without the others.

constexpr int kAttempts = 8;
// Of the slots that a channel has room for, no operation uses the last (Group).
constexpr std::uint32_t kLastSlot = 15;
constexpr std::uint64_t kOperationBits = 0xfffff;

// The n-th set bit, counted from 0; -1 if there are fewer.
int nth_bit(const std::vector<std::uint64_t>& bits, int n) {
  for (std::size_t i = 0; i < bits.size(); ++i) {
    for (std::uint64_t word = bits[i]; word != 0; word &= word - 1) {
      if (n-- == 0) return static_cast<int>(i) * 64 + std::countr_zero(word);
    }
  }
  return -1;
}

std::uint64_t hash_of(const std::vector<int>& members) {
  return hash_bytes(std::as_bytes(std::span(members)));
}

// The tag is one for lists of the same ranks in any order, which then turn out to differ.
Route route_among(const Group& group, std::vector<int> members) {
  auto job_ranks = std::make_shared<const std::vector<int>>(group.job_ranks_of(members));
  std::ranges::sort(members);
  return {.group = std::move(job_ranks),
          .communicator = static_cast<std::uint32_t>(group.id()),
          .operation = hash_of(members) & kOperationBits,
          .first_channel = first_channel(false, DType::kI64) | kLastSlot};
}

// All members' `own`, one after another in the order of `members`: ranks of the group, this one
// among them. Collective over those alone, and blocks. `what` is the method that asks. Errors:
// those of every operation; kRankMismatch if members have different lists.
//
// Members that are at different calls for the same list meet in order, since messages of one
// tag between two ranks do.
Result<std::vector<std::int64_t>> gather_among(Group& group, const std::vector<int>& members,
                                               std::span<const std::int64_t> own,
                                               std::string_view what) {
  const std::uint64_t hash = hash_of(members);
  const auto size = static_cast<int>(members.size());
  const auto self = std::ranges::find(members, group.rank()) - members.begin();
  std::vector<std::int64_t> mine{static_cast<std::int64_t>(hash)};
  mine.insert(mine.end(), own.begin(), own.end());
  std::vector<std::int64_t> all(mine.size() * members.size());
  auto layout = std::make_shared<const Layout>(
      make_schedule(OpKind::kAllGather, "bruck", static_cast<int>(self), size,
                    static_cast<std::int64_t>(mine.size())),
      DType::kI64, Segmentation{.slots = 1});
  const Operands operands{.in = reinterpret_cast<const std::byte*>(mine.data()),
                          .out = reinterpret_cast<std::byte*>(all.data())};
  auto work = std::make_shared<WorkState>(group.engine());
  GW_TRY(group.engine()->submit(std::make_unique<Operation>(Operation{
      .signature = {.name = what},
      .collective = false,
      .deadline = group.end_of(std::nullopt),
      .execution =
          std::make_unique<Execution>(std::move(layout), operands, route_among(group, members)),
      .work = work,
      .bytes_sent = group.message_bytes()})));
  GW_TRY(Work(std::move(work)).wait());
  std::vector<std::int64_t> gathered;
  for (std::size_t m = 0; m < members.size(); ++m) {
    const auto its = std::span(all).subspan(m * mine.size(), mine.size());
    if (its.front() != mine.front()) {
      return Status(Code::kRankMismatch, format("%s: rank %d has another list of %d ranks",
                                                std::string(what).c_str(), members[m], size));
    }
    gathered.insert(gathered.end(), its.begin() + 1, its.end());
  }
  return gathered;
}

// A communicator id that is free on all members, claimed on this rank's engine. As gather_among();
// kInternal if there is none.
//
// Members choose the smallest id that is free on all of them, claim it on their engines and
// say whether that worked. It fails when another thread, for another group, was quicker on some
// rank: then all try again, each time looking a little further.
Result<int> claim_common_id(Group& group, const std::vector<int>& members, std::string_view what) {
  ProgressEngine& engine = *group.engine();
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::vector<std::uint64_t> free = engine.free_ids();
    const std::vector<std::int64_t> own(free.begin(), free.end());
    GW_ASSIGN(const auto all, gather_among(group, members, own, what));
    std::vector<std::uint64_t> common(own.size(), ~std::uint64_t{0});
    for (std::size_t i = 0; i < all.size(); ++i) {
      common[i % own.size()] &= static_cast<std::uint64_t>(all[i]);
    }
    // Communicators look in different places after a clash.
    const int id = nth_bit(common, attempt * (group.id() + 1));
    const bool claimed = id >= 0 && engine.claim_id(id);
    const std::int64_t success = claimed ? 1 : 0;
    const auto successes = gather_among(group, members, std::span(&success, 1), what);
    const bool good = successes.has_value() && std::ranges::min(successes.value()) == 1;
    if (good) return id;
    if (claimed) engine.release_id(id);
    if (!successes.has_value()) return successes.error();
  }
  return Status(Code::kInternal,
                format("%s: no communicator id was free on all members in %d attempts (at most %d "
                       "communicators at a time)",
                       std::string(what).c_str(), kAttempts, CommunicatorIds::kIds));
}

// Lengths that ranks tell each other add up to less, or they are not lengths.
constexpr std::int64_t kMostGathered = std::int64_t{1} << 40;

template <typename View, typename Bytes>
View bytes_view(Bytes bytes) {
  return {bytes.data(), Shape::vector(static_cast<std::int64_t>(bytes.size())), DType::kU8};
}

}  // namespace

GroupCommunicator::GroupCommunicator(std::shared_ptr<ProgressEngine> engine,
                                     std::vector<int> job_ranks, int id,
                                     CommunicatorOptions options, Segmentation segmentation,
                                     bool fails_alone)
    : group_(std::make_unique<Group>(std::move(engine), std::move(job_ranks), id,
                                     std::move(options), segmentation, fails_alone)) {
  paths_.push_back(make_message_path(*group_));
}

GroupCommunicator::~GroupCommunicator() = default;

void GroupCommunicator::add_path(std::unique_ptr<CallPath> path) {
  if (path != nullptr) paths_.insert(paths_.begin(), std::move(path));
}

TransportStats GroupCommunicator::transport_stats() const {
  TransportStats stats = group_->engine()->stats();
  for (const auto& path : paths_) stats.bytes_sent += path->job_bytes();
  return stats;
}

std::uint64_t GroupCommunicator::bytes_sent() const {
  std::uint64_t bytes = group_->message_bytes()->load(std::memory_order_relaxed) +
                        group_->other_bytes()->load(std::memory_order_relaxed);
  for (const auto& path : paths_) bytes += path->group_bytes();
  return bytes;
}

std::string GroupCommunicator::describe() const {
  std::string text =
      format("communicator %d: rank %d of %d (rank %d of the job's %d) over ", group_->id(), rank(),
             size(), job_rank(rank()), group_->engine()->size()) +
      group_->engine()->describe() + nodes_text(group_->nodes()) + devices_text(*group_->engine());
  if (!group_->note().empty()) text += "; " + group_->note();
  for (const auto& path : paths_) {
    const std::string more = path->describe();
    if (!more.empty()) text += "; " + more;
  }
  return text;
}

SharedMemory GroupCommunicator::shared_memory() const {
  for (const auto& path : paths_) {
    if (path->shared_memory() != SharedMemory::kNone) return path->shared_memory();
  }
  return SharedMemory::kNone;
}

Result<Buffer> GroupCommunicator::allocate(std::size_t bytes) {
  GW_TRY(group_->not_in_child());
  for (const auto& path : paths_) {
    if (std::optional<Buffer> buffer = path->allocate(bytes)) return std::move(*buffer);
  }
  return Buffer::allocate(bytes);
}

Result<std::string_view> GroupCommunicator::algorithm_for(OpKind kind, std::int64_t bytes,
                                                          std::string_view wanted) {
  GW_TRY(group_->not_in_child());
  for (const auto& path : paths_) {
    GW_ASSIGN(const std::optional<std::string_view> name, path->algorithm_for(kind, bytes, wanted));
    if (name) return *name;
  }
  return Status(Code::kInternal, "algorithm_for: no path");  // messages serve all
}

void GroupCommunicator::set_link_parameters(const LinkModel& links) {
  group_->use(links);
  for (const auto& path : paths_) path->use_new_links();
}

CallPath& GroupCommunicator::path_of(const OpCall& call, const OpOptions& options) const {
  for (const auto& path : paths_) {
    if (path->serves(call, options)) return *path;
  }
  return *paths_.back();
}

Result<CheckedCall> GroupCommunicator::check(const CallPath& path, const OpCall& call,
                                             const OpOptions& options) const {
  GW_TRY(group_->not_in_child());
  GW_ASSIGN(const Extent extent, check_call(call, options, rank(), size(), path.device()));
  return CheckedCall{call, options, extent};
}

Result<Work> GroupCommunicator::start(const OpCall& call, const OpOptions& options) {
  GW_TRY(group_->not_in_child());
  CallPath& path = path_of(call, options);
  CheckedCall checked{call, options, {}};
  if (path.device() || !check_quickly(checked, rank(), size())) {
    GW_ASSIGN(checked.extent, check_call(call, options, rank(), size(), path.device()));
  }
  return path.start(checked);
}

Result<Work> CallPath::start(const CheckedCall& call) {
  GW_ASSIGN(const std::unique_ptr<PreparedCall> prepared, prepare(call));
  return prepared->start_alone(call.options.deadline);
}

Result<Work> PreparedCall::start_alone(const std::optional<Deadline>& deadline) {
  GW_TRY(group_.status());
  GW_TRY(before());
  auto work = std::make_shared<WorkState>(group_.engine());
  GW_TRY(start(work, deadline));
  return Work(std::move(work));
}

// Each call goes the way that it would go alone, so that ranks whose batches differ in sends and
// receives agree about the collectives.
Result<Work> GroupCommunicator::start_all(std::span<const OpCall> calls, const OpOptions& options) {
  if (calls.size() == 1) return start(calls.front(), options);
  std::vector<std::unique_ptr<PreparedCall>> prepared;
  for (const auto& path : paths_) {
    std::vector<CheckedCall> its;
    for (const OpCall& call : calls) {
      if (&path_of(call, options) != path.get()) continue;
      GW_ASSIGN(const CheckedCall checked, check(*path, call, options));
      its.push_back(checked);
    }
    if (!its.empty()) GW_TRY(path->prepare_all(its, prepared));
  }
  GW_TRY(status());
  for (const auto& one : prepared) GW_TRY(one->before());
  auto work = std::make_shared<WorkState>(group_->engine(), prepared.size());
  Status refusal;
  for (const auto& one : prepared) {
    const Status started = one->start(work, options.deadline);
    if (refusal.ok()) refusal = started;
  }
  group_->engine()->begin_waiting();
  if (prepared.size() > 1) {  // a device knows of its own part alone
    work->set_hold({});
    work->set_passed({});
  }
  // Those that were taken before the engine failed end with its error, and nobody touches their
  // tensors then.
  if (!refusal.ok()) {
    (void)work->wait(deadline_in(kRefusedEnd));
    return refusal;
  }
  return Work(std::move(work));
}

Result<PersistentWork> GroupCommunicator::prepare(const OpCall& call, const OpOptions& options) {
  if (options.deadline) {
    return Status(Code::kInvalidArgument,
                  "prepare: a deadline (expected none: each run has the communicator's)");
  }
  if (call.kind == OpKind::kRecv && call.peer == kAnySource) {
    return Status(Code::kInvalidArgument, "prepare: a recv from any source (expected a peer)");
  }
  CallPath& path = path_of(call, options);
  GW_ASSIGN(const CheckedCall checked, check(path, call, options));
  GW_ASSIGN(std::shared_ptr<PreparedCall> prepared, path.prepare(checked));
  return PersistentWork([prepared] { return prepared->start_alone(std::nullopt); });
}

Result<int> GroupCommunicator::probe(int peer, int tag, Deadline until) {
  // The same arguments as those of a recv.
  const OpCall recv{.kind = OpKind::kRecv, .peer = peer, .tag = tag};
  const Status sound = check_call(recv, {}, rank(), size()).error();
  if (!sound.ok()) return sound.with_context("probe");
  const std::shared_ptr<ProgressEngine>& engine = group_->engine();
  GW_TRY(group_->status());
  for (const auto& path : paths_) {
    if (auto found = path->probe(peer, tag, until)) return std::move(*found);
  }
  SenderSearch::Request request = group_->search_for(peer, tag);
  auto answer = std::make_shared<SenderSearch::Answer>();
  auto work = std::make_shared<WorkState>(engine);
  GW_TRY(engine->submit(std::make_unique<Operation>(
      Operation{.signature = {.name = "probe"},
                .collective = false,
                .deadline = end_of_probe(until),
                .execution = std::make_unique<SenderSearch>(std::move(request), answer),
                .work = work,
                .bytes_sent = group_->message_bytes()})));
  if (engine->wait(*work, until)) {
    GW_TRY(work->status());
    return answer->source.load();
  }
  answer->unwanted = true;
  return -1;
}

Result<std::unique_ptr<Communicator>> GroupCommunicator::shrink(std::optional<Deadline> deadline) {
  GW_TRY(group_->not_in_child());
  GW_ASSIGN(ProgressEngine::Successor successor,
            group_->engine()->shrink(*group_->job_ranks(), static_cast<std::uint32_t>(group_->id()),
                                     group_->end_of(deadline)));
  constexpr int kRootId = 0;
  (void)successor.engine->claim_id(kRootId);
  auto left =
      std::make_unique<GroupCommunicator>(std::move(successor.engine), std::move(successor.group),
                                          kRootId, group_->options(), group_->segmentation());
  for (auto path = paths_.rbegin(); path != paths_.rend(); ++path) {
    auto renewed = (*path)->for_survivors(left->members());
    if (renewed.has_value()) {
      left->add_path(std::move(renewed).value());
    } else if (left->status().ok()) {
      return renewed.error();
    } else {
      // Another rank was lost meanwhile: the next operation says so, and shrink() may follow.
      break;
    }
  }
  return std::unique_ptr<Communicator>(std::move(left));
}

Result<std::unique_ptr<GroupCommunicator>> GroupCommunicator::group_of(
    const std::vector<int>& members, const GroupOptions& options, std::string_view what) {
  GW_ASSIGN(const int id, claim_common_id(*group_, members, what));
  return std::make_unique<GroupCommunicator>(group_->engine(), group_->job_ranks_of(members), id,
                                             group_->options(), group_->segmentation(),
                                             options.fails_alone);
}

Result<std::unique_ptr<Communicator>> GroupCommunicator::create_group(std::span<const int> ranks,
                                                                      const GroupOptions& options) {
  GW_TRY(group_->not_in_child());
  const std::vector<int> members(ranks.begin(), ranks.end());
  GW_TRY(check_members(members, rank(), size()));
  GW_ASSIGN(std::unique_ptr<GroupCommunicator> part, group_of(members, options, "create_group"));
  // From the last, so that those come first which are first here.
  for (auto path = paths_.rbegin(); path != paths_.rend() && !options.messages_only; ++path) {
    GW_ASSIGN(std::unique_ptr<CallPath> same, (*path)->for_group(part->members()));
    part->add_path(std::move(same));
  }
  return std::unique_ptr<Communicator>(std::move(part));
}

Result<std::unique_ptr<Communicator>> GroupCommunicator::split(int color, int key,
                                                               const GroupOptions& options) {
  GW_TRY(group_->not_in_child());
  const Deadline deadline = group_->end_of(std::nullopt);
  for (const auto& path : paths_) GW_TRY(path->await_all(deadline));
  const std::array<std::int64_t, 2> own{std::max(color, -1), key};
  GW_ASSIGN(const auto all, gather_numbers(*this, own));
  std::vector<std::pair<std::int64_t, int>> keyed;  // (key, rank) of this rank's color
  for (int r = 0; r < size(); ++r) {
    const auto at = 2 * static_cast<std::size_t>(r);
    if (all[at] == own[0]) keyed.emplace_back(all[at + 1], r);
  }
  std::ranges::sort(keyed);
  std::vector<int> members;
  for (const auto& [of, r] : keyed) members.push_back(r);
  std::unique_ptr<GroupCommunicator> part;
  if (color >= 0) {
    GW_ASSIGN(part, group_of(members, options, "split"));
  }
  for (auto path = paths_.rbegin(); path != paths_.rend() && !options.messages_only; ++path) {
    std::optional<GroupMembers> its;
    if (part != nullptr) its.emplace(part->members());
    GW_ASSIGN(std::unique_ptr<CallPath> same,
              (*path)->for_split(color, key, its ? &*its : nullptr));
    if (part != nullptr) part->add_path(std::move(same));
  }
  return std::unique_ptr<Communicator>(std::move(part));
}

// Communicator's own methods: spellings of start().

std::string_view to_string(OpKind kind) { return traits_of(kind).name; }

int Communicator::node_count() const {
  const std::vector<int> node_of = nodes();
  return node_of.empty() ? size() : 1 + *std::ranges::max_element(node_of);
}

std::string_view to_string(Waiting waiting) {
  switch (waiting) {
    case Waiting::kAdaptive: return "adaptive";
    case Waiting::kSpin: return "spin";
    case Waiting::kYield: return "yield";
    case Waiting::kSleep: return "sleep";
  }
  return "?";
}

Result<int> Communicator::probe(int, int, Deadline) {
  return Status(Code::kUnsupported, "probe: not by this communicator");
}

Result<std::unique_ptr<Communicator>> Communicator::create_group(std::span<const int>,
                                                                 const GroupOptions&) {
  return Status(Code::kUnsupported, "create_group: not by this communicator");
}

Result<Buffer> Communicator::allocate(std::size_t bytes) { return Buffer::allocate(bytes); }

Result<Work> Communicator::broadcast(ConstTensorView in, TensorView out, int root,
                                     const OpOptions& options) {
  return start({.kind = OpKind::kBroadcast, .in = in, .out = out, .peer = root}, options);
}

Result<Work> Communicator::broadcast(TensorView tensor, int root, const OpOptions& options) {
  return broadcast(tensor, tensor, root, options);
}

Result<Work> Communicator::reduce(ConstTensorView in, TensorView out, ReduceOp op, int root,
                                  const OpOptions& options) {
  return start({.kind = OpKind::kReduce, .in = in, .out = out, .op = op, .peer = root}, options);
}

Result<Work> Communicator::all_reduce(ConstTensorView in, TensorView out, ReduceOp op,
                                      const OpOptions& options) {
  return start({.kind = OpKind::kAllReduce, .in = in, .out = out, .op = op}, options);
}

Result<Work> Communicator::all_reduce(TensorView tensor, ReduceOp op, const OpOptions& options) {
  return all_reduce(tensor, tensor, op, options);
}

Result<Work> Communicator::all_reduce_fused(std::span<const TensorView> tensors, ReduceOp op,
                                            const OpOptions& options) {
  return start({.kind = OpKind::kAllReduceFused, .op = op, .tensors = tensors}, options);
}

Result<Work> Communicator::reduce_scatter(ConstTensorView in, TensorView out, ReduceOp op,
                                          const OpOptions& options) {
  return start({.kind = OpKind::kReduceScatter, .in = in, .out = out, .op = op}, options);
}

Result<Work> Communicator::reduce_scatter_v(ConstTensorView in, TensorView out,
                                            std::span<const std::int64_t> counts, ReduceOp op,
                                            const OpOptions& options) {
  return start({.kind = OpKind::kReduceScatterV, .in = in, .out = out, .op = op, .counts = counts},
               options);
}

Result<Work> Communicator::all_gather(ConstTensorView in, TensorView out,
                                      const OpOptions& options) {
  return start({.kind = OpKind::kAllGather, .in = in, .out = out}, options);
}

Result<Work> Communicator::all_gather_v(ConstTensorView in, TensorView out,
                                        std::span<const std::int64_t> counts,
                                        const OpOptions& options) {
  return start({.kind = OpKind::kAllGatherV, .in = in, .out = out, .counts = counts}, options);
}

Result<Work> Communicator::all_gather_v(ConstByteSpan in, ByteSpan out,
                                        std::span<const std::int64_t> bytes,
                                        const OpOptions& options) {
  return all_gather_v(bytes_view<ConstTensorView>(in), bytes_view<TensorView>(out), bytes, options);
}

Result<Work> Communicator::all_gather_unsized(ConstByteSpan in, std::vector<std::byte>& out,
                                              std::vector<std::int64_t>& bytes,
                                              const OpOptions& options) {
  const auto own = static_cast<std::int64_t>(in.size());
  bytes.assign(static_cast<std::size_t>(size()), 0);
  GW_ASSIGN(Work exchange, all_gather(const_view_of(std::span<const std::int64_t>(&own, 1)),
                                      view_of(std::span(bytes)), options));
  GW_TRY(exchange.wait());
  std::int64_t sum = 0;
  for (const std::int64_t count : bytes) {
    if (count < 0 || count > kMostGathered - sum) {
      return Status(
          Code::kRankMismatch,
          format("all_gather_unsized: a length of %lld bytes (expected 0 to 2^40 together)",
                 static_cast<long long>(count)));
    }
    sum += count;
  }
  // The lengths are the others' word: more than there is memory for is an error like any other.
  try {
    out.resize(static_cast<std::size_t>(sum));
  } catch (const std::bad_alloc&) {
    const auto most = std::ranges::max_element(bytes);
    return Status(Code::kOutOfMemory,
                  format("all_gather_unsized: no memory for %lld bytes, %lld of them from rank %d",
                         static_cast<long long>(sum), static_cast<long long>(*most),
                         static_cast<int>(most - bytes.begin())));
  }
  return all_gather_v(in, out, bytes, options);
}

Result<Work> Communicator::gather(ConstTensorView in, TensorView out, int root,
                                  const OpOptions& options) {
  return start({.kind = OpKind::kGather, .in = in, .out = out, .peer = root}, options);
}

Result<Work> Communicator::gather_v(ConstTensorView in, TensorView out,
                                    std::span<const std::int64_t> counts, int root,
                                    const OpOptions& options) {
  return start({.kind = OpKind::kGatherV, .in = in, .out = out, .peer = root, .counts = counts},
               options);
}

Result<Work> Communicator::scatter(ConstTensorView in, TensorView out, int root,
                                   const OpOptions& options) {
  return start({.kind = OpKind::kScatter, .in = in, .out = out, .peer = root}, options);
}

Result<Work> Communicator::scatter_v(ConstTensorView in, TensorView out,
                                     std::span<const std::int64_t> counts, int root,
                                     const OpOptions& options) {
  return start({.kind = OpKind::kScatterV, .in = in, .out = out, .peer = root, .counts = counts},
               options);
}

Result<Work> Communicator::all_to_all(ConstTensorView in, TensorView out,
                                      const OpOptions& options) {
  return start({.kind = OpKind::kAllToAll, .in = in, .out = out}, options);
}

Result<Work> Communicator::all_to_all_v(ConstTensorView in,
                                        std::span<const std::int64_t> send_counts, TensorView out,
                                        std::span<const std::int64_t> recv_counts,
                                        const OpOptions& options) {
  return start({.kind = OpKind::kAllToAllV,
                .in = in,
                .out = out,
                .counts = send_counts,
                .recv_counts = recv_counts},
               options);
}

Result<Work> Communicator::all_to_all_v(ConstByteSpan in, std::span<const std::int64_t> send_bytes,
                                        ByteSpan out, std::span<const std::int64_t> recv_bytes,
                                        const OpOptions& options) {
  return all_to_all_v(bytes_view<ConstTensorView>(in), send_bytes, bytes_view<TensorView>(out),
                      recv_bytes, options);
}

Result<Work> Communicator::exclusive_scan(ConstTensorView in, TensorView out, ReduceOp op,
                                          const OpOptions& options) {
  return start({.kind = OpKind::kExclusiveScan, .in = in, .out = out, .op = op}, options);
}

Result<Work> Communicator::barrier(const OpOptions& options) {
  return start({.kind = OpKind::kBarrier}, options);
}

Result<Work> Communicator::send(ConstTensorView tensor, int peer, const OpOptions& options) {
  return start(OpCall::send(tensor, peer), options);
}

Result<Work> Communicator::recv(TensorView tensor, int peer, const OpOptions& options) {
  return start(OpCall::recv(tensor, peer), options);
}

}  // namespace gradwire
