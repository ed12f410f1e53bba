#include "trainer/pipeline/simulate.h"

#include <algorithm>
#include <array>
#include <deque>
#include <queue>
#include <set>
#include <tuple>

#include "base/text.h"
#include "trainer/pipeline/check.h"

namespace gradwire {
namespace {

std::int64_t op_cost(const PipelineOp& op, const PipelineStageCost& stage) {
  switch (op.kind) {
    case PipelineOpKind::kForward: return stage.forward;
    case PipelineOpKind::kBackward: return stage.backward_input + stage.backward_weight;
    case PipelineOpKind::kBackwardInput: return stage.backward_input;
    case PipelineOpKind::kBackwardWeight: return stage.backward_weight;
    case PipelineOpKind::kRecompute: return stage.recompute;
    case PipelineOpKind::kReduceGradients: return stage.reduce_gradients;
    case PipelineOpKind::kReduceTied: return stage.reduce_tied;
    case PipelineOpKind::kReduceReplicas: return stage.reduce_replicas;
    case PipelineOpKind::kUnshard: return stage.unshard;
    case PipelineOpKind::kReshard: return stage.reshard;
    case PipelineOpKind::kOptimizerStep: return stage.optimizer_step;
    case PipelineOpKind::kSendForward:
    case PipelineOpKind::kReceiveForward:
    case PipelineOpKind::kSendBackward:
    case PipelineOpKind::kReceiveBackward:
    case PipelineOpKind::kStashWeights:
    case PipelineOpKind::kDropWeights: break;
  }
  return 0;
}

std::int64_t message_bytes(const PipelineOp& send, const PipelineStageCost& stage) {
  return send.kind == PipelineOpKind::kSendForward ? stage.output_bytes : stage.input_bytes;
}

bool runs_beside(const PipelineOp& op, const PipelineCosts& costs) {
  return costs.overlap && op.kind == PipelineOpKind::kReduceGradients;
}

// What a rank has to have, so far.
class MemoryMeter {
 public:
  // A stage's contexts have so many bytes more than ever before.
  void more_contexts(std::int64_t bytes) { most_.contexts += bytes; }
  void sends(std::int64_t bytes) { add(now_.sends, most_.sends, bytes); }
  void receives(std::int64_t bytes) { add(now_.receives, most_.receives, bytes); }
  PipelineMemory most() const {
    PipelineMemory all = most_;
    all.total = all.contexts + most_messages_;
    return all;
  }

 private:
  void add(std::int64_t& now, std::int64_t& most, std::int64_t bytes) {
    now += bytes;
    most = std::max(most, now);
    most_messages_ = std::max(most_messages_, now_.sends + now_.receives);
  }
  PipelineMemory now_;
  PipelineMemory most_;
  std::int64_t most_messages_ = 0;
};

// One run. What happens at a time comes before what starts at it.
class VirtualRun {
 public:
  VirtualRun(const PipelineSchedule& schedule, const PipelineCosts& costs)
      : schedule_(schedule),
        costs_(costs),
        direct_(costs.links == PipelineLinks::kDirect),
        ordered_(costs.links == PipelineLinks::kOrdered),
        cells_(static_cast<std::size_t>(schedule.stages()) *
               static_cast<std::size_t>(schedule.micro_batches)),
        reducing_(static_cast<std::size_t>(schedule.pipes()) *
                  static_cast<std::size_t>(schedule.stages())),
        kept_(reducing_.size()),
        ranks_(schedule.ranks.size()) {
    result_.busy.resize(ranks_.size());
    result_.reductions.resize(ranks_.size());
    for (const auto& ops : schedule.ranks) result_.spans.emplace_back(ops.size());
  }

  Result<PipelineSimulation> run() {
    mark_recomputed();
    for (int rank = 0; rank < schedule_.size(); ++rank) wake_.insert(rank);
    while (true) {
      while (advance() || start_messages()) {
      }
      if (events_.empty()) break;
      now_ = events_.top().time;
      while (!events_.empty() && events_.top().time == now_) {
        const Event event = events_.top();
        events_.pop();
        handle(event);
      }
    }
    return finish();
  }

 private:
  using Kind = PipelineOpKind;

  struct Event {
    std::int64_t time;
    enum class What : std::uint8_t { kOpEnd, kArrived, kPortsFree, kReduced } what;
    std::size_t subject;  // a rank, a message, or a stage of a pipe
    std::uint64_t number;
    bool operator>(const Event& other) const {
      return std::tie(time, number) > std::tie(other.time, other.number);
    }
  };
  // Of a stage and a micro-batch.
  struct Cell {
    bool forward = false;              // done
    bool input_gradient = false;       // done, by B or I
    bool recomputes = false;           // has R: until then only inputs are kept
    bool activation_here = false;      // arrived from the stage before
    bool gradient_here = false;        // arrived from the next stage
    std::array<int, 2> sends{-1, -1};  // messages from this stage, forward and backward
  };
  struct Message {
    PipelineMessage facts;
    bool issued = false;
    bool posted = false;
    bool arrived = false;
  };
  // In contexts of a stage, in bytes.
  struct Kept {
    std::int64_t now = 0;
    std::int64_t most = 0;
  };
  struct Rank {
    std::size_t next = 0;
    bool running = false;   // an operation whose end is an event
    int waits_for = -1;     // a message, without overlap
    bool out_busy = false;  // ports
    bool in_busy = false;
    bool queue_busy = false;             // ordered: the first transfer is under way
    std::deque<std::size_t> queue = {};  // ordered: messages
    std::int64_t reducer_free = 0;
    MemoryMeter memory = {};
  };

  Rank& rank_at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  std::size_t stage_number(const PipelineOp& op) const {
    return op.pipe * static_cast<std::size_t>(schedule_.stages()) + op.stage;
  }
  Cell& cell(const PipelineOp& op, int stage) {  // a micro-batch is on one pipe
    return cells_[static_cast<std::size_t>(stage) *
                      static_cast<std::size_t>(schedule_.micro_batches) +
                  op.micro];
  }
  Cell& cell(const PipelineOp& op) { return cell(op, op.stage); }
  const PipelineStageCost& stage_cost(const PipelineOp& op) const {
    return costs_.stages[op.stage];
  }
  const PipelineLink& link(int from, int to) const {
    if (costs_.link_of.empty()) return costs_.link;
    return costs_.link_of[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
  }
  const PipelineOp* head(int rank) {
    const auto& ops = schedule_.ranks[static_cast<std::size_t>(rank)];
    const std::size_t next = rank_at(rank).next;
    return next < ops.size() ? &ops[next] : nullptr;
  }
  PipelineSpan& span_of_head(int rank) {
    return result_.spans[static_cast<std::size_t>(rank)][rank_at(rank).next];
  }
  void at(std::int64_t time, Event::What what, std::size_t subject) {
    events_.push({time, what, subject, next_number_++});
  }

  // Whether any rank started, issued or posted something.
  bool advance() {
    bool any = false;
    while (!wake_.empty()) {
      const int rank = *wake_.begin();
      wake_.erase(wake_.begin());
      while (step(rank)) any = true;
    }
    return any;
  }

  bool step(int rank) {
    const PipelineOp* op = head(rank);
    Rank& state = rank_at(rank);
    if (op == nullptr || state.running || state.waits_for >= 0) return false;
    if (is_transfer(op->kind)) return transfer(rank, *op);
    if (op->kind == Kind::kReduceTied || op->kind == Kind::kReduceReplicas) return meet(*op);
    if (runs_beside(*op, costs_)) return reduce_beside(rank, *op);
    if (!ready(*op)) return false;
    start(rank, *op, op_cost(*op, stage_cost(*op)));
    return true;
  }

  bool ready(const PipelineOp& op) {
    if (op.kind == Kind::kForward) {
      if (op.stage == 0) return true;
      return same_rank(op, op.stage - 1) ? cell(op, op.stage - 1).forward
                                         : cell(op).activation_here;
    }
    if (gives_input_gradient(op.kind)) {
      if (op.stage == schedule_.stages() - 1) return true;
      return same_rank(op, op.stage + 1) ? cell(op, op.stage + 1).input_gradient
                                         : cell(op).gradient_here;
    }
    return op.kind != Kind::kOptimizerStep || reducing_[stage_number(op)] == 0;
  }
  bool same_rank(const PipelineOp& op, int stage) const {
    const auto& ranks = schedule_.rank_of[op.pipe];
    return ranks[op.stage] == ranks[static_cast<std::size_t>(stage)];
  }

  void start(int rank, const PipelineOp& op, std::int64_t ticks) {
    rank_at(rank).running = true;
    span_of_head(rank) = {now_, now_ + ticks};
    result_.busy[static_cast<std::size_t>(rank)] += ticks;
    const PipelineStageCost& stage = stage_cost(op);
    if (op.kind == Kind::kForward) {
      keep(op, cell(op).recomputes ? stage.input_bytes : stage.context_bytes);
    }
    if (op.kind == Kind::kRecompute) keep(op, stage.context_bytes - stage.input_bytes);
    at(now_ + ticks, Event::What::kOpEnd, static_cast<std::size_t>(rank));
  }

  // The operation's stage has so many bytes more in contexts, in memory that stays the stage's.
  void keep(const PipelineOp& op, std::int64_t bytes) {
    Kept& kept = kept_[stage_number(op)];
    kept.now += bytes;
    if (kept.now <= kept.most) return;
    rank_at(schedule_.holder(op)).memory.more_contexts(kept.now - kept.most);
    kept.most = kept.now;
  }

  // RT and RR: all their ranks at once, for the longest of their times.
  bool meet(const PipelineOp& op) {
    std::vector<PipelineOp> all = met_ops(schedule_, op);
    all.push_back(op);
    std::int64_t ticks = 0;
    for (const PipelineOp& one : all) {
      const int rank = schedule_.holder(one);
      const PipelineOp* there = head(rank);
      if (there == nullptr || *there != one || rank_at(rank).running) return false;
      if (rank_at(rank).waits_for >= 0) return false;
      ticks = std::max(ticks, op_cost(one, stage_cost(one)));
    }
    for (const PipelineOp& one : all) start(schedule_.holder(one), one, ticks);
    return true;
  }

  bool reduce_beside(int rank, const PipelineOp& op) {
    Rank& state = rank_at(rank);
    const std::int64_t begin = std::max(now_, state.reducer_free);
    state.reducer_free = begin + op_cost(op, stage_cost(op));
    result_.reductions[static_cast<std::size_t>(rank)].push_back({begin, state.reducer_free});
    ++reducing_[stage_number(op)];
    at(state.reducer_free, Event::What::kReduced, stage_number(op));
    pass(rank);
    return true;
  }

  // Goes on behind an operation that takes the rank no time.
  void pass(int rank) {
    span_of_head(rank) = {now_, now_};
    ++rank_at(rank).next;
  }

  void end_op(int rank) {
    const PipelineOp op = *head(rank);
    Rank& state = rank_at(rank);
    state.running = false;
    ++state.next;
    wake_.insert(rank);
    if (!is_compute(op.kind)) return;
    if (op.kind == Kind::kForward) cell(op).forward = true;
    if (gives_input_gradient(op.kind)) cell(op).input_gradient = true;
    release(state.memory, op);
    if (!direct_) return;
    if (op.kind == Kind::kForward) send_directly(op, Kind::kSendForward);
    if (gives_input_gradient(op.kind)) send_directly(op, Kind::kSendBackward);
  }

  // What is not needed behind a computation.
  void release(MemoryMeter& memory, const PipelineOp& op) {
    const PipelineStageCost& stage = stage_cost(op);
    if (op.kind == Kind::kBackwardInput) keep(op, stage.weight_bytes - stage.context_bytes);
    if (op.kind == Kind::kBackwardWeight) keep(op, -stage.weight_bytes);
    if (op.kind == Kind::kBackward) keep(op, -stage.context_bytes);
    if (op.kind == Kind::kForward && cell(op).activation_here) {
      memory.receives(-costs_.stages[op.stage - std::size_t{1}].output_bytes);
    }
    if (gives_input_gradient(op.kind) && cell(op).gradient_here) {
      memory.receives(-costs_.stages[op.stage + std::size_t{1}].input_bytes);
    }
  }

  // The message that a transfer is an end of.
  std::size_t message_of(const PipelineOp& op) {
    const bool forward = op.kind == Kind::kSendForward || op.kind == Kind::kReceiveForward;
    const bool sends = op.kind == Kind::kSendForward || op.kind == Kind::kSendBackward;
    PipelineOp send = op;
    send.kind = forward ? Kind::kSendForward : Kind::kSendBackward;
    if (!sends) send.stage = static_cast<std::uint16_t>(forward ? op.stage - 1 : op.stage + 1);
    int& number = cell(send).sends[forward ? 0U : 1U];
    if (number < 0) {
      number = static_cast<int>(messages_.size());
      PipelineOp receiver = send;
      receiver.stage = static_cast<std::uint16_t>(forward ? send.stage + 1 : send.stage - 1);
      messages_.push_back({.facts = {.send = send,
                                     .from = schedule_.holder(send),
                                     .to = schedule_.holder(receiver),
                                     .bytes = message_bytes(send, stage_cost(send))}});
    }
    return static_cast<std::size_t>(number);
  }

  bool transfer(int rank, const PipelineOp& op) {
    const bool sends = op.kind == Kind::kSendForward || op.kind == Kind::kSendBackward;
    const std::size_t number = message_of(op);
    Message& message = messages_[number];
    Rank& state = rank_at(rank);
    (sends ? message.issued : message.posted) = true;
    if (sends) {
      state.memory.sends(message.facts.bytes);
    } else {
      state.memory.receives(message.facts.bytes);
    }
    if (ordered_) {
      state.queue.push_back(number);
      queues_.insert(rank);
    } else if (costs_.overlap) {
      offer(number);
    } else if (sends) {
      message.posted = true;  // it is buffered there
      offer(number);
    }
    span_of_head(rank) = {now_, now_};
    if (!costs_.overlap && (sends || ordered_)) {
      state.waits_for = static_cast<int>(number);
    } else {
      ++state.next;
    }
    return true;
  }

  void send_directly(const PipelineOp& op, Kind kind) {
    PipelineOp send = op;
    send.kind = kind;
    send.version = 0;
    if (met_ops(schedule_, send).empty()) return;
    const std::size_t number = message_of(send);
    Message& message = messages_[number];
    message.issued = message.posted = true;
    Rank& sender = rank_at(message.facts.from);
    sender.memory.sends(message.facts.bytes);
    if (!costs_.overlap) sender.waits_for = static_cast<int>(number);
    offer(number);
  }

  void offer(std::size_t number) {
    Message& message = messages_[number];
    if (!message.issued || !message.posted) return;
    message.facts.ready = now_;
    ready_.insert({now_, message.facts.from, message.facts.send, number});
  }

  bool start_messages() {
    bool any = false;
    for (auto next = ready_.begin(); next != ready_.end();) {
      const std::size_t number = std::get<3>(*next);
      const PipelineMessage& facts = messages_[number].facts;
      Rank& from = rank_at(facts.from);
      Rank& to = rank_at(facts.to);
      if (from.out_busy || to.in_busy) {
        ++next;
        continue;
      }
      next = ready_.erase(next);
      const std::int64_t kept = link(facts.from, facts.to).beta * facts.bytes;
      if (kept > 0) {
        from.out_busy = to.in_busy = true;
        at(now_ + kept, Event::What::kPortsFree, number);
      }
      start_message(number);
      any = true;
    }
    return start_queues() || any;
  }

  // Ordered: messages that are first in both queues.
  bool start_queues() {
    bool any = false;
    while (!queues_.empty()) {
      Rank& rank = rank_at(*queues_.begin());
      queues_.erase(queues_.begin());
      if (rank.queue_busy || rank.queue.empty()) continue;
      const std::size_t number = rank.queue.front();
      Rank& from = rank_at(messages_[number].facts.from);
      Rank& to = rank_at(messages_[number].facts.to);
      const auto is_first = [number](const Rank& one) {
        return !one.queue_busy && !one.queue.empty() && one.queue.front() == number;
      };
      if (!is_first(from) || !is_first(to)) continue;
      from.queue_busy = to.queue_busy = true;
      messages_[number].facts.ready = now_;
      start_message(number);
      any = true;
    }
    return any;
  }

  void start_message(std::size_t number) {
    PipelineMessage& facts = messages_[number].facts;
    const PipelineLink& used = link(facts.from, facts.to);
    facts.span = {now_, now_ + used.alpha + used.beta * facts.bytes};
    if (direct_) rank_at(facts.to).memory.receives(facts.bytes);
    started_.push_back(number);
    at(facts.span.end, Event::What::kArrived, number);
  }

  void arrived(std::size_t number) {
    Message& message = messages_[number];
    message.arrived = true;
    const PipelineMessage& facts = message.facts;
    const bool forward = facts.send.kind == Kind::kSendForward;
    Cell& there = cell(facts.send, facts.send.stage + (forward ? 1 : -1));
    (forward ? there.activation_here : there.gradient_here) = true;
    rank_at(facts.from).memory.sends(-facts.bytes);
    for (const int rank : {facts.from, facts.to}) {
      Rank& state = rank_at(rank);
      if (ordered_) {
        state.queue.pop_front();
        state.queue_busy = false;
        queues_.insert(rank);
      }
      if (state.waits_for == static_cast<int>(number)) {
        state.waits_for = -1;
        if (!direct_) ++state.next;
      }
      wake_.insert(rank);
    }
  }

  void handle(const Event& event) {
    switch (event.what) {
      case Event::What::kOpEnd: end_op(static_cast<int>(event.subject)); break;
      case Event::What::kArrived: arrived(event.subject); break;
      case Event::What::kPortsFree:
        rank_at(messages_[event.subject].facts.from).out_busy = false;
        rank_at(messages_[event.subject].facts.to).in_busy = false;
        break;
      case Event::What::kReduced:
        --reducing_[event.subject];
        wake_.insert(holder_of(event.subject));
        break;
    }
  }
  int holder_of(std::size_t stage_number) const {
    const auto stages = static_cast<std::size_t>(schedule_.stages());
    return schedule_.rank_of[stage_number / stages][stage_number % stages];
  }

  Result<PipelineSimulation> finish() {
    for (int rank = 0; rank < schedule_.size(); ++rank) {
      if (const PipelineOp* op = head(rank)) {
        return Status(
            Code::kInternal,
            format("pipeline schedule: rank %d waits at %s (operation %zu) without an end", rank,
                   to_string(*op).c_str(), rank_at(rank).next));
      }
      result_.memory.push_back(rank_at(rank).memory.most());
    }
    result_.makespan = now_;
    for (const std::size_t number : started_) result_.messages.push_back(messages_[number].facts);
    return std::move(result_);
  }

  // Which forwards keep their inputs alone.
  void mark_recomputed() {
    for (const auto& ops : schedule_.ranks) {
      for (const PipelineOp& op : ops) {
        if (op.kind == Kind::kRecompute) cell(op).recomputes = true;
      }
    }
  }

  const PipelineSchedule& schedule_;
  const PipelineCosts& costs_;
  bool direct_;
  bool ordered_;
  std::int64_t now_ = 0;
  std::vector<Cell> cells_;
  std::vector<int> reducing_;  // by pipe and stage: RGs under way
  std::vector<Kept> kept_;     // by pipe and stage
  std::vector<Rank> ranks_;
  std::vector<Message> messages_;
  std::vector<std::size_t> started_;
  std::set<int> wake_;    // ranks that may go on
  std::set<int> queues_;  // ranks whose queue has changed
  std::set<std::tuple<std::int64_t, int, PipelineOp, std::size_t>> ready_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t next_number_ = 0;
  PipelineSimulation result_;
};

// Every number of a stage, with its name.
struct NamedNumber {
  const char* name;
  std::int64_t value;
};
std::vector<NamedNumber> numbers_of(const PipelineStageCost& stage) {
  return {{"forward", stage.forward},
          {"backward_input", stage.backward_input},
          {"backward_weight", stage.backward_weight},
          {"recompute", stage.recompute},
          {"reduce_gradients", stage.reduce_gradients},
          {"reduce_tied", stage.reduce_tied},
          {"reduce_replicas", stage.reduce_replicas},
          {"unshard", stage.unshard},
          {"reshard", stage.reshard},
          {"optimizer_step", stage.optimizer_step},
          {"output_bytes", stage.output_bytes},
          {"input_bytes", stage.input_bytes},
          {"context_bytes", stage.context_bytes},
          {"weight_bytes", stage.weight_bytes}};
}

Status negative(const char* what, std::int64_t value) {
  return {Code::kInvalidArgument, format("pipeline costs: %s=%lld (expected 0 or more)", what,
                                         static_cast<long long>(value))};
}

Status check_links(const PipelineCosts& costs, std::size_t ranks) {
  std::vector<PipelineLink> all{costs.link};
  if (!costs.link_of.empty()) {
    bool square = costs.link_of.size() == ranks;
    for (const auto& row : costs.link_of) {
      square = square && row.size() == ranks;
      all.insert(all.end(), row.begin(), row.end());
    }
    if (!square) {
      return {Code::kInvalidArgument,
              format("pipeline costs: %zu rows of links (expected %zu of %zu links)",
                     costs.link_of.size(), ranks, ranks)};
    }
  }
  for (const PipelineLink& one : all) {
    if (one.alpha < 0) return negative("alpha", one.alpha);
    if (one.beta < 0) return negative("beta", one.beta);
  }
  return {};
}

// No sum of times overflows.
Status check_costs(const PipelineSchedule& schedule, const PipelineCosts& costs) {
  if (costs.stages.size() != static_cast<std::size_t>(schedule.stages())) {
    return {Code::kInvalidArgument, format("pipeline costs of %zu stages (expected %d)",
                                           costs.stages.size(), schedule.stages())};
  }
  GW_TRY(check_links(costs, schedule.ranks.size()));
  double largest = 0;  // of any operation or message
  double bytes = 0;
  for (const PipelineStageCost& stage : costs.stages) {
    for (const NamedNumber& number : numbers_of(stage)) {
      if (number.value < 0) return negative(number.name, number.value);
      largest = std::max(largest, 2 * static_cast<double>(number.value));
    }
    bytes = std::max(bytes, static_cast<double>(std::max(stage.output_bytes, stage.input_bytes)));
  }
  double message =
      static_cast<double>(costs.link.alpha) + static_cast<double>(costs.link.beta) * bytes;
  for (const auto& row : costs.link_of) {
    for (const PipelineLink& one : row) {
      message =
          std::max(message, static_cast<double>(one.alpha) + static_cast<double>(one.beta) * bytes);
    }
  }
  constexpr double kMostTicks = 0x1p62;
  if ((largest + 2 * message) * static_cast<double>(count_ops(schedule)) < kMostTicks) return {};
  return {Code::kInvalidArgument,
          format("pipeline costs of up to %s ticks or bytes an operation, for %zu operations "
                 "(expected a sum below 2^62)",
                 shortest(largest + 2 * message).c_str(), count_ops(schedule))};
}

}  // namespace

PipelineCosts even_costs(int stages, std::int64_t forward, std::int64_t backward_input,
                         std::int64_t backward_weight) {
  PipelineCosts costs;
  costs.stages.resize(
      static_cast<std::size_t>(stages),
      {.forward = forward, .backward_input = backward_input, .backward_weight = backward_weight});
  return costs;
}

std::int64_t PipelineSimulation::busy_total() const {
  std::int64_t total = 0;
  for (const std::int64_t ticks : busy) total += ticks;
  return total;
}

std::int64_t PipelineSimulation::idle_total() const {
  return makespan * static_cast<std::int64_t>(busy.size()) - busy_total();
}

double PipelineSimulation::bubble_of_busy() const {
  return busy_total() == 0 ? 0
                           : static_cast<double>(idle_total()) / static_cast<double>(busy_total());
}

double PipelineSimulation::bubble_of_all() const {
  const std::int64_t all = idle_total() + busy_total();
  return all == 0 ? 0 : static_cast<double>(idle_total()) / static_cast<double>(all);
}

Result<PipelineSimulation> simulate_pipeline(const PipelineSchedule& schedule,
                                             const PipelineCosts& costs) {
  GW_TRY(check_pipeline(schedule, {.links = costs.links}).status());
  GW_TRY(check_costs(schedule, costs));
  return VirtualRun(schedule, costs).run();
}

}  // namespace gradwire
