#include "trainer/pipeline/run/executor.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.h"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;

bool is_send(PipelineOpKind kind) {
  return kind == PipelineOpKind::kSendForward || kind == PipelineOpKind::kSendBackward;
}

// The receive that a computation reads from, whether there is one or not.
PipelineOp receive_of(const PipelineOp& op) {
  PipelineOp receive = op;
  receive.kind = op.kind == PipelineOpKind::kForward ? PipelineOpKind::kReceiveForward
                                                     : PipelineOpKind::kReceiveBackward;
  receive.version = 0;
  return receive;
}

bool reads_message(PipelineOpKind kind) {
  return kind == PipelineOpKind::kForward || gives_input_gradient(kind);
}

std::string place_of(const PipelineOp& op) {
  if (op.micro == PipelineOp::kNoMicro) return format("stage %d", op.stage);
  return format("stage %d, micro-batch %d", op.stage, op.micro);
}

}  // namespace

Result<PipelineExecutor> PipelineExecutor::create(const PipelineSchedule& schedule, int rank,
                                                  const PipelineExecution& how, PipelineWork& work,
                                                  PipelineTransfers& transfers) {
  if (rank < 0 || rank >= schedule.size()) {
    return Status(Code::kInvalidArgument, format("pipeline executor: rank %d (expected 0 to %d)",
                                                 rank, schedule.size() - 1));
  }
  if (how.links == PipelineLinks::kDirect && schedule.size() > 1) {
    return Status(Code::kInvalidArgument,
                  format("pipeline executor: direct links between %d ranks (expected tagged or "
                         "ordered ones)",
                         schedule.size()));
  }
  if (!how.room.empty() && how.room.size() != static_cast<std::size_t>(schedule.stages())) {
    return Status(Code::kInvalidArgument,
                  format("pipeline executor: room of %zu stages (expected %d)", how.room.size(),
                         schedule.stages()));
  }
  PipelineExecutor made(rank, how, work, transfers);
  GW_TRY(made.plan(schedule));
  if (!how.room.empty()) GW_TRY(made.plan_waits(schedule));
  GW_TRY(transfers.prepare(made.transfer_count_));
  return made;
}

// Which turn waits for which message is known before the first one.
Status PipelineExecutor::plan(const PipelineSchedule& schedule) {
  std::map<PipelineOp, std::size_t> unread;  // receives, by turn
  std::size_t sends = 0;
  std::size_t reductions = 0;
  for (PipelineOp op : schedule.ranks[static_cast<std::size_t>(rank_)]) {
    Turn turn{.op = op};
    op.version = 0;
    if (is_transfer(op.kind)) {
      const std::vector<PipelineOp> met = met_ops(schedule, op);
      if (met.empty()) {
        return {Code::kInvalidArgument, format("pipeline executor: %s of rank %d has no other end",
                                               to_string(op).c_str(), rank_)};
      }
      turn.peer = schedule.holder(met.front());
      turn.number = transfer_count_++;
      if (is_send(op.kind)) ++sends;
      if (!is_send(op.kind)) unread[op] = turns_.size();
    } else if (reads_message(op.kind)) {
      const PipelineOp receive = receive_of(op);
      const auto posted = unread.find(receive);
      if (posted != unread.end()) {
        turn.reads = posted->second;
        unread.erase(posted);
      } else if (!met_ops(schedule, receive).empty()) {
        return {Code::kInvalidArgument,
                format("pipeline executor: rank %d has %s without %s before it", rank_,
                       to_string(op).c_str(), to_string(receive).c_str())};
      }
    }
    if (op.kind == PipelineOpKind::kReduceGradients) ++reductions;
    turns_.push_back(turn);
  }
  sends_.reserve(sends);
  reductions_.reserve(reductions);
  if (unread.empty()) return {};
  return {Code::kInvalidArgument,
          format("pipeline executor: nothing on rank %d reads what %s brings", rank_,
                 to_string(unread.begin()->first).c_str())};
}

Status PipelineExecutor::plan_waits(const PipelineSchedule& schedule) {
  const MessageRoom known = message_room(schedule, rank_);
  std::map<std::pair<int, bool>, std::vector<std::size_t>> unread;  // by stage, and direction
  for (std::size_t index = 0; index < turns_.size(); ++index) {
    const std::size_t send = known.send[index];
    if (send == MessageRoom::kNoSend) continue;
    Turn& turn = turns_[index];
    const bool forward = turn.op.kind == PipelineOpKind::kForward;
    const StageRoom& room = how_.room[turn.op.stage];
    const auto most = static_cast<std::size_t>(forward ? room.activations_out : room.gradients_out);
    std::vector<std::size_t>& sends = unread[{turn.op.stage, forward}];
    turn.awaits_begin = awaited_.size();
    for (const std::size_t read : known.read[index]) {
      if (std::erase(sends, read) > 0) awaited_.push_back(read);
    }
    for (; !sends.empty() && sends.size() >= most; sends.erase(sends.begin())) {
      if (sends.front() > index) break;
      awaited_.push_back(sends.front());
    }
    turn.awaits_end = awaited_.size();
    sends.push_back(send);
    if (sends.size() <= most) continue;
    return {Code::kInvalidArgument,
            format("pipeline executor: room for %zu messages of rank %d at %s (expected %zu)", most,
                   rank_, to_string(turn.op).c_str(), sends.size())};
  }
  return {};
}

Status PipelineExecutor::named(const Status& status, const PipelineOp& op,
                               const Turn* message) const {
  if (status.ok()) return {};
  std::string where =
      format("pipeline rank %d at %s (%s)", rank_, to_string(op).c_str(), place_of(op).c_str());
  if (message != nullptr) {
    where += format(", %s %s rank %d", to_string(message->op).c_str(),
                    is_send(message->op.kind) ? "to" : "from", message->peer);
  }
  return status.with_context(where);
}

Status PipelineExecutor::run() {
  if (!status_.ok()) return status_;
  for (const std::size_t send : sends_) turns_[send].ended = false;
  sends_.clear();
  first_send_ = 0;
  reductions_.clear();
  status_ = run_all();
  if (!status_.ok()) transfers_->stop();
  return status_;
}

Status PipelineExecutor::run_all() {
  for (std::size_t turn = 0; turn < turns_.size(); ++turn) GW_TRY(take(turn));
  GW_TRY(finish_reductions(nullptr));
  GW_TRY(reap(true));
  return transfers_->finish().with_context(format("pipeline rank %d", rank_));
}

Status PipelineExecutor::take(std::size_t index) {
  const Turn& turn = turns_[index];
  if (is_transfer(turn.op.kind)) return transfer(turn, index);
  if (turn.op.kind == PipelineOpKind::kReduceGradients) return reduce(index);
  return compute(turn);
}

Status PipelineExecutor::compute(const Turn& turn) {
  for (std::size_t at = turn.awaits_begin; at < turn.awaits_end; ++at) {
    GW_TRY(end_send(awaited_[at]));
  }
  if (turn.reads != kNone) {
    const Turn& receive = turns_[turn.reads];
    const bool ended = how_.links == PipelineLinks::kOrdered && !how_.overlap;
    if (!ended) GW_TRY(named(transfers_->wait(receive.number), turn.op, &receive));
  }
  if (turn.op.kind == PipelineOpKind::kOptimizerStep) GW_TRY(finish_reductions(&turn.op));
  return named(work_on(turn.op), turn.op);
}

Status PipelineExecutor::work_on(const PipelineOp& op) {
  if (told_ == nullptr) return work_->run(op);
  PipelineOpTime time{.op = op, .begin = Clock::now()};
  const Status status = work_->run(op);
  time.end = Clock::now();
  (*told_)(time);
  return status;
}

Status PipelineExecutor::transfer(const Turn& turn, std::size_t index) {
  if (!is_send(turn.op.kind)) {
    auto room = work_->room_for(turn.op);
    if (!room.has_value()) return named(room.error(), turn.op, &turn);
    GW_TRY(
        named(transfers_->receive(turn.number, turn.op, turn.peer, room.value()), turn.op, &turn));
    if (how_.overlap || how_.links != PipelineLinks::kOrdered) return {};
    return wait_for(turn);
  }
  GW_TRY(reap(false));
  auto message = work_->message(turn.op);
  if (!message.has_value()) return named(message.error(), turn.op, &turn);
  if (told_ != nullptr) turns_[index].begin = Clock::now();
  GW_TRY(named(transfers_->send(turn.number, turn.op, turn.peer, message.value()), turn.op, &turn));
  sends_.push_back(index);
  return how_.overlap ? Status() : reap(true);
}

Status PipelineExecutor::wait_for(const Turn& turn) {
  return named(transfers_->wait(turn.number), turn.op, &turn);
}

void PipelineExecutor::free_send(Turn& send) {
  send.ended = true;
  work_->sent(send.op);
  if (told_ == nullptr) return;
  (*told_)({.op = send.op, .to = send.peer, .begin = send.begin, .end = Clock::now()});
}

Status PipelineExecutor::end_send(std::size_t turn) {
  Turn& send = turns_[turn];
  if (send.ended) return {};
  GW_TRY(wait_for(send));
  free_send(send);
  return {};
}

// Memory of the oldest sends is free as soon as these have ended; `all`: they are waited for.
Status PipelineExecutor::reap(bool all) {
  for (; first_send_ < sends_.size(); ++first_send_) {
    Turn& send = turns_[sends_[first_send_]];
    if (all) {
      GW_TRY(end_send(sends_[first_send_]));
      continue;
    }
    if (send.ended) continue;
    auto ended = transfers_->done(send.number);
    if (!ended.has_value()) return named(ended.error(), send.op, &send);
    if (!ended.value()) return {};
    free_send(send);
  }
  return {};
}

Status PipelineExecutor::reduce(std::size_t index) {
  const PipelineOp& op = turns_[index].op;
  GW_TRY(named(work_->run(op), op));
  reductions_.push_back(index);
  return how_.overlap ? Status() : finish_reductions(&op);
}

// Those of the stage of `of`; null: all of them.
Status PipelineExecutor::finish_reductions(const PipelineOp* of) {
  const auto kept = [&](std::size_t index) {
    const PipelineOp& op = turns_[index].op;
    return of != nullptr && (op.stage != of->stage || op.pipe != of->pipe);
  };
  for (const std::size_t index : reductions_) {
    if (!kept(index)) GW_TRY(named(work_->finish(turns_[index].op), turns_[index].op));
  }
  std::erase_if(reductions_, [&](std::size_t index) { return !kept(index); });
  return {};
}

}  // namespace gradwire
