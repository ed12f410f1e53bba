#include "trainer/pipeline/run/stream_executor.h"

#include <algorithm>

#include "base/text.h"

namespace gradwire {
namespace {

PipelineOp message_op(PipelineOp op, PipelineOpKind kind) {
  op.kind = kind;
  op.version = 0;
  return op;
}

bool runs_forward(const PipelineOp& op) { return op.kind == PipelineOpKind::kForward; }

}  // namespace

Result<StreamExecutor> StreamExecutor::create(const StreamRule& rule, int rank,
                                              const StageRoom& room, bool wraps, PipelineWork& work,
                                              PipelineTransfers& transfers) {
  if (rank < 0 || rank >= rule.ranks) {
    return Status(Code::kInvalidArgument,
                  format("pipeline stream: rank %d (expected 0 to %d)", rank, rule.ranks - 1));
  }
  const bool before = rank == 0 || (room.activations_in > 0 && room.gradients_out > 0);
  const bool behind = rank + 1 == rule.ranks || (room.activations_out > 0 && room.gradients_in > 0);
  if (!before || !behind) {
    return Status(
        Code::kInvalidArgument,
        format("pipeline stream: no room for messages of rank %d (expected 1 or more)", rank));
  }
  StreamExecutor made(rule, rank, room, wraps, work, transfers);
  made.taken_.resize(static_cast<std::size_t>(room.activations_out + room.gradients_out) + 4);
  GW_TRY(transfers.prepare(made.taken_.size()));
  return made;
}

std::vector<PipelineOp> StreamExecutor::ops_of(std::int64_t step, std::int64_t steps) const {
  return rule_.step(rank_, step, steps, wraps_ ? rule_.window() : 0,
                    wraps_ ? rule_.version_window() : 0);
}

Status StreamExecutor::run(std::int64_t step, std::int64_t steps) {
  if (!status_.ok()) return status_;
  status_ = run_all(step, steps);
  if (!status_.ok()) transfers_->stop();
  return status_;
}

Status StreamExecutor::run_all(std::int64_t step, std::int64_t steps) {
  std::vector<PipelineOp> ops = ops_of(step, steps);
  const bool last = step + 1 == steps;
  // The next step's first computation is one ahead of this one's last.
  if (!last) {
    const std::vector<PipelineOp> next = ops_of(step + 1, steps);
    ops.push_back(next.front());
  }
  std::vector<std::size_t> computations;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (is_compute(ops[i].kind)) computations.push_back(i);
  }
  std::size_t posted = 0;
  std::size_t begun = 0;
  for (std::size_t i = 0; i < ops.size() - (last ? 0 : 1); ++i) {
    if (is_compute(ops[i].kind)) {
      ++begun;
      for (; posted < std::min(begun + 1, computations.size()); ++posted) {
        GW_TRY(post(ops[computations[posted]]));
      }
    }
    GW_TRY(take(ops[i]));
  }
  return {};
}

Status StreamExecutor::drain() {
  if (!status_.ok()) return status_;
  status_ = drain_all();
  if (!status_.ok()) transfers_->stop();
  return status_;
}

Status StreamExecutor::take(const PipelineOp& op) {
  if (op.kind == PipelineOpKind::kOptimizerStep) return {};
  if (!is_compute(op.kind)) return named(work_->run(op), op);
  GW_TRY(make_room(op));
  GW_TRY(read(op));
  PipelineOpTime time{.op = op};
  if (told_ != nullptr) time.begin = std::chrono::steady_clock::now();
  GW_TRY(named(work_->run(op), op));
  if (told_ != nullptr) {
    time.end = std::chrono::steady_clock::now();
    (*told_)(time);
  }
  return send(op);
}

// The rank at the other end of the message that a computation reads, or makes; -1: there is none.
int StreamExecutor::peer_of(const PipelineOp& op, bool reads) const {
  const int peer = rank_ + (runs_forward(op) == reads ? -1 : 1);
  return peer >= 0 && peer < rule_.ranks ? peer : -1;
}

std::size_t StreamExecutor::take_number() {
  const auto free = std::ranges::find(taken_, false);
  const auto number = static_cast<std::size_t>(free - taken_.begin());
  taken_[number] = true;
  return number;
}

// Of what the computation reads, unless it has been posted ahead.
Status StreamExecutor::post(const PipelineOp& reader) {
  const int peer = peer_of(reader, true);
  if (peer < 0) return {};
  const PipelineOp op = message_op(reader, runs_forward(reader) ? PipelineOpKind::kReceiveForward
                                                                : PipelineOpKind::kReceiveBackward);
  if (std::ranges::find(receives_, op, &Message::op) != receives_.end()) return {};
  Message message{.op = op, .peer = peer, .number = take_number()};
  auto room = work_->room_for(op);
  if (!room.has_value()) return named(room.error(), op, &message);
  receives_.push_back(message);
  return named(transfers_->receive(message.number, op, peer, room.value()), op, &message);
}

Status StreamExecutor::read(const PipelineOp& op) {
  if (peer_of(op, true) < 0) return {};
  const PipelineOpKind kind =
      runs_forward(op) ? PipelineOpKind::kReceiveForward : PipelineOpKind::kReceiveBackward;
  const auto posted = std::ranges::find(receives_, message_op(op, kind), &Message::op);
  const Message message = *posted;
  receives_.erase(posted);
  GW_TRY(named(transfers_->wait(message.number), op, &message));
  taken_[message.number] = false;
  return {};
}

std::deque<StreamExecutor::Message>& StreamExecutor::sends_of(const PipelineOp& op) {
  return runs_forward(op) ? forward_ : backward_;
}

Status StreamExecutor::make_room(const PipelineOp& op) {
  GW_TRY(reap());
  if (peer_of(op, false) < 0) return {};
  const int most = runs_forward(op) ? room_.activations_out : room_.gradients_out;
  std::deque<Message>& sends = sends_of(op);
  while (sends.size() >= static_cast<std::size_t>(most)) GW_TRY(end_send(sends));
  return {};
}

Status StreamExecutor::send(const PipelineOp& op) {
  const int peer = peer_of(op, false);
  if (peer < 0) return {};
  Message message{.op = message_op(op, runs_forward(op) ? PipelineOpKind::kSendForward
                                                        : PipelineOpKind::kSendBackward),
                  .peer = peer,
                  .number = take_number()};
  auto bytes = work_->message(message.op);
  if (!bytes.has_value()) return named(bytes.error(), message.op, &message);
  if (told_ != nullptr) message.begin = std::chrono::steady_clock::now();
  GW_TRY(named(transfers_->send(message.number, message.op, peer, bytes.value()), message.op,
               &message));
  sends_of(op).push_back(message);
  return {};
}

void StreamExecutor::free_send(std::deque<Message>& sends) {
  const Message message = sends.front();
  sends.pop_front();
  taken_[message.number] = false;
  work_->sent(message.op);
  if (told_ == nullptr) return;
  (*told_)({.op = message.op,
            .to = message.peer,
            .begin = message.begin,
            .end = std::chrono::steady_clock::now()});
}

Status StreamExecutor::end_send(std::deque<Message>& sends) {
  GW_TRY(named(transfers_->wait(sends.front().number), sends.front().op, &sends.front()));
  free_send(sends);
  return {};
}

// Memory of the oldest sends is free as soon as these have ended.
Status StreamExecutor::reap() {
  for (std::deque<Message>* sends : {&forward_, &backward_}) {
    while (!sends->empty()) {
      auto ended = transfers_->done(sends->front().number);
      if (!ended.has_value()) return named(ended.error(), sends->front().op, &sends->front());
      if (!ended.value()) break;
      free_send(*sends);
    }
  }
  return {};
}

Status StreamExecutor::drain_all() {
  for (std::deque<Message>* sends : {&forward_, &backward_}) {
    while (!sends->empty()) GW_TRY(end_send(*sends));
  }
  return transfers_->finish().with_context(format("pipeline rank %d", rank_));
}

Status StreamExecutor::named(const Status& status, const PipelineOp& op,
                             const Message* message) const {
  if (status.ok()) return {};
  std::string where =
      format("pipeline rank %d at %s (stage %d", rank_, to_string(op).c_str(), op.stage);
  where += op.micro == PipelineOp::kNoMicro ? ")" : format(", micro-batch %d)", op.micro);
  if (message != nullptr) {
    const bool sends = message->op.kind == PipelineOpKind::kSendForward ||
                       message->op.kind == PipelineOpKind::kSendBackward;
    where += format(", %s %s rank %d", to_string(message->op).c_str(), sends ? "to" : "from",
                    message->peer);
  }
  return status.with_context(where);
}

}  // namespace gradwire
