#include "collectives/shm/memory_path.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "collectives/failure/flight_recorder.h"
#include "collectives/schedules/op_traits.h"
#include "collectives/shm/execution.h"
#include "collectives/shm/moves.h"

namespace gradwire {
namespace {

// Up to which size a queue takes operations; the last takes all others.
constexpr std::size_t kLatencyBytes = 32 << 10;
constexpr std::size_t kPipelineBytes = 4 << 20;
constexpr ShmQueue kGroupQueues[] = {{.small_bytes = 32 << 10, .slot_bytes = kLatencyBytes},
                                     {.small_bytes = 0, .slot_bytes = 512 << 10},
                                     {.small_bytes = 0, .slot_bytes = 512 << 10}};

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
                 .root = traits.rooted ? call.peer : 0,
                 .queue = queue_of(checked)};
  if (traits.counted) memory.lengths.assign(call.counts.begin(), call.counts.end());
  return memory;
}

// Operations up to this size are tried inside the call: handing one over costs a microsecond or
// two, which is what they take.
constexpr std::size_t kAtOnceBytes = 1 << 20;
// Looks without success before an operation is handed over after all, some 20 us.
constexpr int kLooks = 400;
// A crowded rank sleeps then, for as long as a round of small operations may take.
constexpr std::chrono::microseconds kShortSleep{200};

Signature signature_of(const ShmCall& call) {
  return signature_of(call.kind, call.dtype, call.op, call.elems, call.root);
}

}  // namespace

// A planned call, and its runs.
class MemoryPath::Run final : public PreparedCall {
 public:
  // The channel, which is that of such a call, outlives this.
  Run(MemoryPath& path, const CheckedCall& call, Operated operated)
      : PreparedCall(path.group_),
        call_(call_in_memory(call, operated, path.group_.size())),
        moves_(shm_moves_of(call_.kind)),
        channel_(path.channel_for(moves_.in_bytes(call_, path.group_.size()))),
        operated_(std::move(operated)) {}

  Status before() override { return operated_.before ? operated_.before() : Status(); }
  Status start(const std::shared_ptr<WorkState>& work,
               const std::optional<Deadline>& deadline) override;
  // Small operations end in here.
  Result<Work> start_alone(const std::optional<Deadline>& deadline) override;

 private:
  ShmExecution begin();
  std::uint64_t begin_flight() const;
  Status hand_over(ShmExecution execution, std::uint64_t flight,
                   const std::optional<Deadline>& deadline, std::shared_ptr<WorkState> work);
  bool run_at_once(ShmExecution& execution) const;
  bool wait_at_once(const ShmExecution& execution) const;

  ShmCall call_;  // of the last run
  const ShmMoves& moves_;
  const std::shared_ptr<ShmChannel>& channel_;
  Operated operated_;
};

// A planned send or recv, and its runs.
class MemoryPath::Message final : public PreparedCall {
 public:
  Message(Group& group, ShmMessages& messages, const CheckedCall& call)
      : PreparedCall(group), messages_(messages), kept_(call) {}

  Status start(const std::shared_ptr<WorkState>& work,
               const std::optional<Deadline>& deadline) override {
    const Status status = run(work, deadline).error();
    if (!status.ok()) work->finish(status);
    return status;
  }
  Result<Work> start_alone(const std::optional<Deadline>& deadline) override {
    return run(nullptr, deadline);
  }

 private:
  Result<Work> run(const std::shared_ptr<WorkState>& work,
                   const std::optional<Deadline>& deadline) {
    if (group().has_failed()) return group().status();
    kept_.options.deadline = deadline;
    return messages_.start({kept_.call, kept_.options, kept_.extent}, work);
  }

  ShmMessages& messages_;
  KeptCall kept_;
};

MemoryPath::MemoryPath(Group& group, std::shared_ptr<const SharedHosts> hosts, Channels channels,
                       std::shared_ptr<ShmMessages> messages)
    : SharedPath(group, std::move(hosts)),
      channels_(std::move(channels)),
      messages_(std::move(messages)),
      memory_(std::make_shared<OwnMemory>(
          // In the segment, where it has any left.
          ScratchPool(
              [boards = hosts_->boards](std::size_t bytes, Device) {
                auto shared = boards->arena().allocate(bytes);
                return shared.has_value() ? std::move(shared) : Buffer::allocate(bytes);
              },
              kAnySize))) {}

MemoryPath::~MemoryPath() {
  if (messages_) messages_->close(group_.has_failed());
  if (group_.has_failed()) return;
  for (const auto& channel : channels_) channel->close();
}

Result<std::unique_ptr<CallPath>> MemoryPath::create(
    const GroupMembers& members, const std::shared_ptr<const SharedHosts>& hosts) {
  Group& group = members.group;
  const std::shared_ptr<ShmBoards>& boards = hosts->boards;
  const ShmLayout layout =
      ShmLayout::within(boards->arena().bytes_of_share(),
                        {std::begin(kGroupQueues), std::end(kGroupQueues)}, group.size());
  // What this rank has made: the board, at rank 0, and its outbox.
  std::array<std::int64_t, 2> own{-1, -1};
  if (group.rank() == 0) {
    const auto made = boards->make(layout.bytes(), layout.channels());
    if (made.has_value()) own[0] = static_cast<std::int64_t>(made.value());
  }
  if (hosts->messages) {
    const auto made = boards->make(ShmOutbox::bytes(group.size()), group.size());
    if (made.has_value()) own[1] = static_cast<std::int64_t>(made.value());
  }
  GW_ASSIGN(const auto all, gather_numbers(members.communicator, own));
  // A rank may give up as soon as it has the path: by then all others know what it is made of. Of
  // an error here the next operation tells.
  auto met = members.communicator.barrier();
  if (met.has_value()) (void)met.value().wait();
  if (all[0] < 0) {
    if (own[1] >= 0) boards->leave(static_cast<std::uint64_t>(own[1]), group.size());
    return std::unique_ptr<CallPath>();
  }
  std::vector<int> places;
  std::vector<std::uint64_t> outboxes;
  for (int r = 0; r < group.size(); ++r) {
    places.push_back(boards->arena_rank(group.job_rank(r)));
    const std::int64_t its = all[2 * static_cast<std::size_t>(r) + 1];
    if (its >= 0) outboxes.push_back(static_cast<std::uint64_t>(its));
  }
  Channels channels;
  for (std::size_t queue = 0; queue < channels.size(); ++queue) {
    channels[queue] = std::make_shared<ShmChannel>(boards, static_cast<std::uint64_t>(all[0]),
                                                   layout, queue, places, group.rank());
  }
  std::shared_ptr<ShmMessages> messages;
  if (outboxes.size() == places.size()) {
    messages = std::make_shared<ShmMessages>(group, boards, std::move(places), outboxes);
  } else if (own[1] >= 0) {
    // Nobody uses it.
    boards->leave(static_cast<std::uint64_t>(own[1]), group.size());
  }
  return std::unique_ptr<CallPath>(
      new MemoryPath(group, hosts, std::move(channels), std::move(messages)));
}

// The communicator's own choice of an algorithm is for all_reduce and reduce_scatter alone.
bool MemoryPath::serves(OpKind kind, std::string_view algorithm) const {
  if (kind == OpKind::kAllToAllV || traits_of(kind).pair) return false;
  const OpKind base = traits_of(kind).base;
  const bool has_default = base == OpKind::kAllReduce || base == OpKind::kReduceScatter;
  if (has_default && algorithm == "auto") algorithm = group_.options().algorithm;
  return algorithm == "auto" || algorithm == kShmAlgorithm ||
         (has_default && algorithm == "canonical");
}

bool MemoryPath::serves(const OpCall& call, const OpOptions& options) const {
  if (call.kind == OpKind::kSend || call.kind == OpKind::kRecv) return messages_ != nullptr;
  return !names_device(call, options) && serves(call.kind, options.algorithm);
}

Result<std::optional<std::string_view>> MemoryPath::algorithm_for(OpKind kind, std::int64_t,
                                                                  std::string_view wanted) {
  return serves(kind, wanted) ? std::optional(kShmAlgorithm) : std::nullopt;
}

// Equal on all ranks, as the bytes are.
const std::shared_ptr<ShmChannel>& MemoryPath::channel_for(std::size_t bytes) const {
  return channels_[bytes <= kLatencyBytes ? kLatency : bytes <= kPipelineBytes ? kPipeline : kBulk];
}

Result<std::unique_ptr<PreparedCall>> MemoryPath::prepare(const CheckedCall& call) {
  if (traits_of(call.call.kind).pair) {
    return std::unique_ptr<PreparedCall>(std::make_unique<Message>(group_, *messages_, call));
  }
  GW_ASSIGN(Operated operated,
            is_plain(call) ? as_it_is(call) : operated_of(call, call.options.stream, *memory_));
  return std::unique_ptr<PreparedCall>(std::make_unique<Run>(*this, call, std::move(operated)));
}

Result<Work> MemoryPath::start(const CheckedCall& call) {
  if (call.call.kind == OpKind::kSend || call.call.kind == OpKind::kRecv) {
    if (group_.has_failed()) return group_.status();
    return messages_->start(call, nullptr);
  }
  GW_ASSIGN(Operated operated,
            is_plain(call) ? as_it_is(call) : operated_of(call, call.options.stream, *memory_));
  return Run(*this, call, std::move(operated)).start_alone(call.options.deadline);
}

std::optional<Result<int>> MemoryPath::probe(int peer, int tag, Deadline until) {
  if (!messages_) return std::nullopt;
  return messages_->probe(peer, tag, until);
}

std::string MemoryPath::describe() const {
  return std::string("collectives in shared memory") + (messages_ ? ", and messages" : "");
}

// Until the execution can move, for a while; true when it can.
bool MemoryPath::Run::wait_at_once(const ShmExecution& execution) const {
  const ShmLooks looks(group().options().waiting, channel_->crowded(), kLooks, 1);
  for (int look = 0; look < looks.most(); ++look) {
    if (execution.met()) return true;
    looks.pause(look);
  }
  // Who drives larger ones meanwhile is not to be held up by this one.
  const bool others = channel_->boards().under_way().load(std::memory_order_relaxed) > 0;
  if (looks.keeps() || !(channel_->crowded() || others)) return execution.met();
  channel_->sleep([&] { return execution.ready(); },
                  std::chrono::steady_clock::now() + kShortSleep);
  return execution.met();
}

// True when it has ended.
bool MemoryPath::Run::run_at_once(ShmExecution& execution) const {
  while (true) {
    const Result<bool> moved = execution.step();
    if (!moved.has_value()) return false;  // will fail again, where it can be dealt with
    if (execution.done()) return true;
    if (!moved.value() && !wait_at_once(execution)) return false;
  }
}

// Without an allocation or another thread. What others need not wait for is done while this rank
// waits for them.
Result<Work> MemoryPath::Run::start_alone(const std::optional<Deadline>& deadline) {
  if (group().has_failed()) return group().status();
  GW_TRY(before());
  ShmExecution execution = begin();
  const bool brief = moves_.in_bytes(call_, group().size()) <= kAtOnceBytes &&
                     channel_->handed_over.load(std::memory_order_acquire) == 0;
  const bool sound = !brief || execution.step().has_value();
  const std::uint64_t flight = begin_flight();
  if (brief && sound && run_at_once(execution)) {
    group().other_bytes()->fetch_add(execution.bytes_sent(), std::memory_order_relaxed);
    group().engine()->recorder().end_at_once(flight, execution.bytes_sent());
    if (operated_.after) GW_TRY(operated_.after());
    return Work(nullptr);
  }
  auto work = std::make_shared<WorkState>(group().engine());
  GW_TRY(hand_over(std::move(execution), flight, deadline, work));
  return Work(std::move(work));
}

Status MemoryPath::Run::start(const std::shared_ptr<WorkState>& work,
                              const std::optional<Deadline>& deadline) {
  ShmExecution execution = begin();
  return hand_over(std::move(execution), begin_flight(), deadline, work);
}

ShmExecution MemoryPath::Run::begin() {
  call_.number = group().take_number() + 1;
  return {*channel_, moves_, call_, channel_->next++};
}

std::uint64_t MemoryPath::Run::begin_flight() const {
  return group().engine()->recorder().begin(
      {.communicator = static_cast<std::uint32_t>(group().id()),
       .number = call_.number - 1,
       .signature = signature_of(call_),
       .algorithm = kShmAlgorithm});
}

Status MemoryPath::Run::hand_over(ShmExecution execution, std::uint64_t flight,
                                  const std::optional<Deadline>& deadline,
                                  std::shared_ptr<WorkState> work) {
  auto running = std::make_unique<ShmExecution>(std::move(execution));
  running->hand_over(channel_, group().route_of(call_.number - 1));
  return group().engine()->submit(
      std::make_unique<Operation>(Operation{.signature = signature_of(call_),
                                            .number = call_.number - 1,
                                            .algorithm = kShmAlgorithm,
                                            .queue = call_.queue,
                                            .deadline = group().end_of(deadline),
                                            .execution = std::move(running),
                                            .work = std::move(work),
                                            .bytes_sent = group().other_bytes(),
                                            .after = operated_.after,
                                            .own = operated_.lent,
                                            .flight = flight}));
}

}  // namespace gradwire
