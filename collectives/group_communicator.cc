#include "collectives/group_communicator.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/text.h"
#include "collectives/device/device_fill.h"
#include "collectives/engine/staged_execution.h"
#include "collectives/plan/arguments.h"
#include "collectives/schedules/nodes.h"
#include "collectives/schedules/schedules.h"

namespace gradwire {
namespace {

// Tag channels: point-to-point 1 bit | dtype 3 bits | slot 4 bits. With the dtype in the tag, ranks
// that disagree about it never mix up elements: they time out, and the roll call says why.
std::uint32_t channel_of(bool point_to_point, DType dtype) {
  return (point_to_point ? 128u : 0u) | (static_cast<std::uint32_t>(dtype) << 4);
}
constexpr int kMostSlots = 15;
// A probe ends by itself soon after its caller has given it up.
constexpr std::chrono::hours kProbesLinger{1};

// The operation's part of its tags: the number, and 6 bits of what ranks must agree on beside dtype
// and sizes. Messages of ranks that disagree never meet, so they time out, and the roll call says
// why, instead of a sum of maxima. Two that differ in one of the three, roots by less than 64,
// never have the same bits. Numbers wrap after 2^14 operations. Of a pair, either 0 and 19 bits of
// the number, or 1, 15 bits of the caller's tag and 4 of the number: equal ones meet in order, and
// PostingOrder keeps the parts of one message together.
std::uint64_t tag_number(const PlannedOperation& planned, std::uint64_t number) {
  if (planned.pair && planned.tag == 0) return number & 0x7ffff;
  if (planned.pair) {
    return 1u << 19 | static_cast<std::uint64_t>(planned.tag) << 4 | (number & 0xf);
  }
  const auto bits = 19 * static_cast<std::uint64_t>(planned.kind) +
                    7 * static_cast<std::uint64_t>(planned.operands.op) +
                    static_cast<std::uint64_t>(planned.root + 1);
  return (bits & 0x3f) << 14 | (number & 0x3fff);
}

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

}  // namespace

GroupCommunicator::GroupCommunicator(std::shared_ptr<ProgressEngine> engine, std::vector<int> group,
                                     int rank, int id, CommunicatorOptions options,
                                     Segmentation segmentation)
    : engine_(std::move(engine)),
      group_(std::make_shared<const std::vector<int>>(std::move(group))),
      rank_(rank),
      id_(id),
      options_(std::move(options)),
      segmentation_(segmentation),
      planner_(rank, static_cast<int>(group_->size()), options_.algorithm,
               {static_cast<int>(group_->size()), options_.links,
                static_cast<std::int64_t>(segmentation.segment_bytes)}),
      bytes_sent_(std::make_shared<std::atomic<std::uint64_t>>(0)),
      ledger_(std::make_shared<PairLedger>(group_)) {
  engine_->keep_ledger(static_cast<std::uint32_t>(id_), ledger_);
  planner_.use_devices({[lanes = engine_->lanes()](Device device) { return lanes->of(device); },
                        engine_->takes_cuda_memory()});
  segmentation_.slots = std::clamp(segmentation_.slots, 1, kMostSlots);
  if (options_.node_of.empty()) return;
  std::vector<int> keys;
  for (const int job_rank : *group_) {
    keys.push_back(options_.node_of[static_cast<std::size_t>(job_rank)]);
  }
  planner_.use_nodes(nodes_of(keys).node_of);
}

GroupCommunicator::~GroupCommunicator() { engine_->release_id(id_); }

Route GroupCommunicator::route_among(std::shared_ptr<const std::vector<int>> job_ranks,
                                     std::uint64_t number, DType dtype) const {
  return {std::move(job_ranks), static_cast<std::uint32_t>(id_), number & 0x3fff,
          channel_of(false, dtype)};
}

void GroupCommunicator::set_link_parameters(const LinkModel& links) {
  options_.links = links;
  planner_.use({size(), links, static_cast<std::int64_t>(segmentation_.segment_bytes)});
}

std::string GroupCommunicator::describe() const {
  return format("communicator %d: rank %d of %d (rank %d of the job's %d) over ", id_, rank_,
                size(), job_rank(rank_), engine_->size()) +
         engine_->describe() + nodes_text(planner_.nodes()) + devices_text(*engine_) +
         (note_.empty() ? "" : "; " + note_);
}

Result<Work> GroupCommunicator::start(const OpCall& call, const OpOptions& options) {
  return start_all(std::span(&call, 1), options);
}

Result<std::vector<PlannedOperation>> GroupCommunicator::plan_all(std::span<const OpCall> calls,
                                                                  const OpOptions& options) {
  std::vector<PlannedOperation> planned;
  planned.reserve(calls.size());
  for (const OpCall& call : calls) {
    GW_ASSIGN(PlannedOperation one, planner_.plan(call, options));
    planned.push_back(std::move(one));
  }
  return planned;
}

Result<Work> GroupCommunicator::start_all(std::span<const OpCall> calls, const OpOptions& options) {
  GW_ASSIGN(auto planned, plan_all(calls, options));
  return launch(std::move(planned), options.deadline);
}

Result<PersistentWork> GroupCommunicator::prepare(const OpCall& call, const OpOptions& options) {
  if (options.deadline) {
    return Status(Code::kInvalidArgument,
                  "prepare: a deadline (expected none: each run has the communicator's)");
  }
  if (call.kind == OpKind::kRecv && call.peer == kAnySource) {
    return Status(Code::kInvalidArgument, "prepare: a recv from any source (expected a peer)");
  }
  GW_ASSIGN(PlannedOperation planned, planner_.plan(call, options));
  return PersistentWork(
      [this, planned = std::move(planned)] { return launch({planned}, std::nullopt); });
}

Result<Work> GroupCommunicator::launch(std::vector<PlannedOperation> planned,
                                       std::optional<Deadline> deadline) {
  auto work = std::make_shared<WorkState>(engine_, planned.size());
  GW_TRY(launch(std::move(planned), deadline, work));
  return Work(std::move(work));
}

Status GroupCommunicator::launch(std::vector<PlannedOperation> planned,
                                 std::optional<Deadline> deadline,
                                 const std::shared_ptr<WorkState>& work) {
  GW_TRY(engine_->status());
  for (const PlannedOperation& one : planned) {
    if (one.before) GW_TRY(one.before());
  }
  const Deadline now = std::chrono::steady_clock::now();
  const Deadline until = deadline.value_or(deadline_in(options_.deadline_seconds));
  Status refusal;
  for (PlannedOperation& one : planned) {
    auto operation = operation_of(std::move(one), work);
    operation->started = now;
    operation->deadline = until;
    const Status submitted = engine_->submit(std::move(operation));
    if (refusal.ok()) refusal = submitted;
  }
  // Those that were taken before the engine failed end with its error.
  return refusal;
}

Route GroupCommunicator::route_of(const PlannedOperation& planned, std::uint64_t number) const {
  return {group_, static_cast<std::uint32_t>(id_), tag_number(planned, number),
          channel_of(planned.pair, planned.operands.dtype)};
}

Segmentation GroupCommunicator::segmentation_of(const PlannedOperation& planned) const {
  Segmentation segmentation = segmentation_;
  segmentation.ends_short = planned.pair;
  if (planned.segment_bytes > 0) {
    const auto bytes = static_cast<std::size_t>(planned.segment_bytes);
    segmentation.segment_bytes = segmentation.least_segment_bytes =
        std::min(segmentation_.segment_bytes, bytes);
  }
  return segmentation;
}

// All but its times. Its number among those of its kind tells its messages from others'.
std::unique_ptr<Operation> GroupCommunicator::operation_of(PlannedOperation planned,
                                                           const std::shared_ptr<WorkState>& work) {
  auto operation = std::make_unique<Operation>(Operation{.name = to_string(planned.kind),
                                                         .dtype = to_string(planned.operands.dtype),
                                                         .elems = planned.elems,
                                                         .reduce = planned.reduce,
                                                         .root = planned.root,
                                                         .algorithm = planned.algorithm,
                                                         .collective = !planned.pair,
                                                         .started = {},
                                                         .deadline = {},
                                                         .execution = nullptr,
                                                         .work = work,
                                                         .bytes_sent = bytes_sent_,
                                                         .after = std::move(planned.after),
                                                         .own = std::move(planned.own)});
  if (planned.pair && planned.peer == kAnySource) {
    operation->execution = search_of(std::move(planned), work);
    return operation;
  }
  PairLedger::Message message;
  if (!planned.pair) {
    message.number = next_operation_++;
  } else if (planned.kind == OpKind::kRecv) {
    message = ledger_->take_recv(planned.peer, planned.tag);
  } else {
    message = ledger_->take_send(planned.peer, planned.tag);
  }
  operation->number = message.number;
  if (message.wanted) {
    const EngineNote note = note_about(EngineNote::Kind::kSent, static_cast<std::uint32_t>(id_),
                                       engine_->generation(), planned.tag, message.number + 1);
    operation->begin = [to = job_rank(planned.peer), note](Transport& transport) {
      transport.tell(to, encode(note));
    };
  }
  Route route = route_of(planned, operation->number);
  route.turn = message.turn;
  const Segmentation segmentation = segmentation_of(planned);
  if (planned.fill.empty()) {
    operation->execution = std::make_unique<Execution>(
        std::move(planned.schedule), planned.operands, std::move(route), segmentation);
    return operation;
  }
  StagedExecution::Stages stages;
  stages.push_back(std::make_unique<Execution>(std::move(planned.schedule), planned.operands, route,
                                               segmentation));
  stages.push_back(std::make_unique<DeviceFill>(route, planned.operands.staging->lane,
                                                planned.operands.op, planned.fill));
  std::vector<StagedExecution::Stages> piece;
  piece.push_back(std::move(stages));
  operation->execution = std::make_unique<StagedExecution>(route, std::move(piece), 1);
  return operation;
}

// What it makes outlives the communicator, if need be.
std::unique_ptr<Runnable> GroupCommunicator::search_of(PlannedOperation planned,
                                                       const std::shared_ptr<WorkState>& work) {
  SenderSearch::Wish wish = wish_of(kAnySource, planned.tag);
  const Segmentation segmentation = segmentation_of(planned);
  auto receive = [planned, wish, segmentation, rank = rank_, size = size(), work](
                     int peer, const PairLedger::Message& message) -> std::unique_ptr<Runnable> {
    work->set_source(peer);
    Route route = wish.route;
    route.operation = tag_number(planned, message.number);
    route.turn = message.turn;
    route.first_channel = channel_of(true, planned.operands.dtype);
    return std::make_unique<Execution>(point_to_point_recv(rank, size, peer, planned.elems),
                                       planned.operands, std::move(route), segmentation);
  };
  return std::make_unique<SenderSearch>(std::move(wish), std::move(receive));
}

SenderSearch::Wish GroupCommunicator::wish_of(int peer, int tag) const {
  SenderSearch::Wish wish{.ledger = ledger_,
                          .route = {group_, static_cast<std::uint32_t>(id_), 0, 0},
                          .generation = engine_->generation(),
                          .peers = {},
                          .tag = tag};
  for (int r = 0; r < size(); ++r) {
    if (r != rank_ && (peer == kAnySource || peer == r)) wish.peers.push_back(r);
  }
  return wish;
}

Result<int> GroupCommunicator::probe(int peer, int tag, Deadline until) {
  // The same arguments as those of a recv.
  const OpCall recv{.kind = OpKind::kRecv, .peer = peer, .tag = tag};
  const Status sound = check_call(recv, {}, rank_, size()).error();
  if (!sound.ok()) return sound.with_context("probe");
  GW_TRY(engine_->status());
  SenderSearch::Wish wish = wish_of(peer, tag);
  for (const int sender : wish.peers) {
    if (ledger_->waits(sender, tag)) return sender;
  }
  auto answer = std::make_shared<SenderSearch::Answer>();
  auto work = std::make_shared<WorkState>(engine_);
  const Deadline now = std::chrono::steady_clock::now();
  GW_TRY(engine_->submit(std::make_unique<Operation>(
      Operation{.name = "probe",
                .collective = false,
                .started = now,
                .deadline = until + kProbesLinger,
                .execution = std::make_unique<SenderSearch>(std::move(wish), answer),
                .work = work,
                .bytes_sent = bytes_sent_})));
  if (engine_->wait(*work, until)) {
    GW_TRY(work->status());
    return answer->source.load();
  }
  answer->unwanted = true;
  return -1;
}

}  // namespace gradwire
