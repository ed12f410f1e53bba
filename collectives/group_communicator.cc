#include "collectives/group_communicator.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/text.h"
#include "collectives/schedules/nodes.h"

namespace gradwire {
namespace {

// Tag channels: point-to-point 1 bit | dtype 3 bits | slot 4 bits. With the dtype in the tag, ranks
// that disagree about it never mix up elements: they time out, and the roll call says why.
std::uint32_t channel_of(bool point_to_point, DType dtype) {
  return (point_to_point ? 128u : 0u) | (static_cast<std::uint32_t>(dtype) << 4);
}
constexpr int kMostSlots = 15;

// The operation's part of its tags: the number, and 6 bits of what ranks must agree on beside dtype
// and sizes. Messages of ranks that disagree never meet, so they time out, and the roll call says
// why, instead of a sum of maxima. Two that differ in one of the three, roots by less than 64,
// never have the same bits. Numbers wrap after 2^14 operations.
std::uint64_t tag_number(const PlannedOperation& planned, std::uint64_t number) {
  if (planned.peer >= 0) return number;
  const auto bits = 19 * static_cast<std::uint64_t>(planned.kind) +
                    7 * static_cast<std::uint64_t>(planned.operands.op) +
                    static_cast<std::uint64_t>(planned.root + 1);
  return (bits & 0x3f) << 14 | (number & 0x3fff);
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
      next_send_(group_->size(), 0),
      next_recv_(group_->size(), 0) {
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

void GroupCommunicator::use_links(const LinkModel& links) {
  options_.links = links;
  planner_.use({size(), links, static_cast<std::int64_t>(segmentation_.segment_bytes)});
}

std::string GroupCommunicator::describe() const {
  return format("communicator %d: rank %d of %d (rank %d of the job's %d) over ", id_, rank_,
                size(), job_rank(rank_), engine_->size()) +
         engine_->describe() + nodes_text(planner_.nodes()) + (note_.empty() ? "" : "; " + note_);
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
                  "prepare: a deadline (none wanted: each run has the communicator's)");
  }
  GW_ASSIGN(PlannedOperation planned, planner_.plan(call, options));
  return PersistentWork(
      [this, planned = std::move(planned)] { return launch({planned}, std::nullopt); });
}

std::uint64_t GroupCommunicator::number_of(const PlannedOperation& planned) {
  if (planned.peer < 0) return next_operation_++;
  const auto peer = static_cast<std::size_t>(planned.peer);
  return planned.kind == OpKind::kSend ? next_send_[peer]++ : next_recv_[peer]++;
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
    const std::uint64_t number = number_of(one);
    const DType dtype = one.operands.dtype;
    Route route{group_, static_cast<std::uint32_t>(id_), tag_number(one, number),
                channel_of(one.peer >= 0, dtype)};
    Segmentation segmentation = segmentation_;
    if (one.segment_bytes > 0) {
      const auto bytes = static_cast<std::size_t>(one.segment_bytes);
      segmentation.segment_bytes = segmentation.least_segment_bytes =
          std::min(segmentation_.segment_bytes, bytes);
    }
    auto operation = std::make_unique<Operation>(
        Operation{.name = to_string(one.kind),
                  .number = number,
                  .dtype = to_string(dtype),
                  .elems = one.elems,
                  .reduce = one.reduce,
                  .root = one.root,
                  .algorithm = one.algorithm,
                  .collective = one.peer < 0,
                  .started = now,
                  .deadline = until,
                  .execution = std::make_unique<Execution>(std::move(one.schedule), one.operands,
                                                           std::move(route), segmentation),
                  .work = work,
                  .bytes_sent = bytes_sent_,
                  .after = std::move(one.after)});
    const Status submitted = engine_->submit(std::move(operation));
    if (refusal.ok()) refusal = submitted;
  }
  // Those that were taken before the engine failed end with its error.
  return refusal;
}

}  // namespace gradwire
