#include "trainer/pipeline/simulate.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/text.h"
#include "timeline/timeline.h"
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

// A schedule as tasks of the timeline: one for each operation, then messages and reductions beside.
// Rank r's out-port is resource 2 r, its in-port 2 r + 1.
class LoweredPipeline {
 public:
  struct Message {
    PipelineMessage facts = {};
    int task = -1;
    int issued = -1;  // the task that makes it, or sends it
    int posted = -1;  // the receive
  };
  // What a task is.
  struct Meaning {
    enum class What : std::uint8_t { kOp, kMessage, kReduction } what = What::kOp;
    int rank = 0;
    std::size_t index = 0;  // an operation of the rank, or a message
  };

  LoweredPipeline(const PipelineSchedule& schedule, const PipelineCosts& costs)
      : schedule_(schedule),
        costs_(costs),
        direct_(costs.links == PipelineLinks::kDirect),
        ordered_(costs.links == PipelineLinks::kOrdered),
        sent_(2 * static_cast<std::size_t>(schedule.stages()) *
                  static_cast<std::size_t>(schedule.micro_batches),
              -1),
        before_(count_ops(schedule)),
        reductions_(schedule.ranks.size()) {
    tasks.resize(before_.size());
    for (int rank = 0; rank < schedule.size(); ++rank) add_ops(rank);
    for (std::size_t number = 0; number < messages.size(); ++number) {
      messages[number].task =
          add_task({Meaning::What::kMessage, messages[number].facts.from, number});
    }
    for (int rank = 0; rank < schedule.size(); ++rank) order_rank(rank);
    for (int rank = 0; rank < schedule.size(); ++rank) set_ops(rank);
    for (const Message& message : messages) set_message(message);
    if (ordered_) {
      set_queues();
    } else {
      set_turns();
    }
  }

  std::vector<TimelineTask> tasks = {};
  std::vector<Meaning> meanings = {};  // by task
  std::vector<Message> messages = {};

  int first_task(int rank) const { return first_[static_cast<std::size_t>(rank)]; }
  // Tasks, in their order.
  const std::vector<int>& reductions(int rank) const {
    return reductions_[static_cast<std::size_t>(rank)];
  }
  // The message that a computation reads, or that it makes without transfers; null: none.
  const Message* read_by(const PipelineOp& op) const {
    const bool forward = op.kind == Kind::kForward;
    const int from = op.stage + (forward ? -1 : 1);
    if (!(forward || gives_input_gradient(op.kind)) || from < 0 || from >= schedule_.stages()) {
      return nullptr;
    }
    return at(sent_[cell(from, op.micro, forward)]);
  }
  const Message* made_by(const PipelineOp& op) const {
    const bool forward = op.kind == Kind::kForward;
    if (!direct_ || !(forward || gives_input_gradient(op.kind))) return nullptr;
    return at(sent_[cell(op.stage, op.micro, forward)]);
  }
  // The message that a transfer is an end of.
  const Message& of_transfer(const PipelineOp& op) const {
    const PipelineOp send = sending_end(op);
    return *at(sent_[cell(send.stage, send.micro, send.kind == Kind::kSendForward)]);
  }

 private:
  using Kind = PipelineOpKind;

  std::size_t cell(int stage, int micro, bool forward) const {
    return 2 * (static_cast<std::size_t>(stage) *
                    static_cast<std::size_t>(schedule_.micro_batches) +
                static_cast<std::size_t>(micro)) +
           (forward ? 0U : 1U);
  }
  const Message* at(int number) const {
    return number < 0 ? nullptr : &messages[static_cast<std::size_t>(number)];
  }
  const std::vector<PipelineOp>& ops(int rank) const {
    return schedule_.ranks[static_cast<std::size_t>(rank)];
  }
  const PipelineStageCost& stage_cost(const PipelineOp& op) const {
    return costs_.stages[op.stage];
  }
  TimelineTask& task(int number) { return tasks[static_cast<std::size_t>(number)]; }
  std::vector<int>& before(int number) { return before_[static_cast<std::size_t>(number)]; }

  static PipelineOp sending_end(const PipelineOp& op) {
    const bool forward = op.kind == Kind::kSendForward || op.kind == Kind::kReceiveForward;
    PipelineOp send = op;
    send.kind = forward ? Kind::kSendForward : Kind::kSendBackward;
    if (is_receive(op)) send.stage = static_cast<std::uint16_t>(op.stage + (forward ? -1 : 1));
    return send;
  }
  static bool is_receive(const PipelineOp& op) {
    return op.kind == Kind::kReceiveForward || op.kind == Kind::kReceiveBackward;
  }

  int add_task(const Meaning& meaning) {
    tasks.emplace_back();
    meanings.push_back(meaning);
    return static_cast<int>(tasks.size()) - 1;
  }

  // Numbers operations, and finds all messages.
  void add_ops(int rank) {
    const int first = static_cast<int>(meanings.size());
    first_.push_back(first);
    for (std::size_t index = 0; index < ops(rank).size(); ++index) {
      meanings.push_back({Meaning::What::kOp, rank, index});
    }
    for (std::size_t index = 0; index < ops(rank).size(); ++index) {
      const PipelineOp& op = ops(rank)[index];
      const int number = first + static_cast<int>(index);
      if (is_transfer(op.kind)) {
        Message& message = message_of(sending_end(op));
        (is_receive(op) ? message.posted : message.issued) = number;
      } else if (direct_ && (op.kind == Kind::kForward || gives_input_gradient(op.kind))) {
        PipelineOp send = op;
        send.kind = op.kind == Kind::kForward ? Kind::kSendForward : Kind::kSendBackward;
        send.version = 0;
        if (!met_ops(schedule_, send).empty()) message_of(send).issued = number;
      }
      if (op.kind == Kind::kReduceTied || op.kind == Kind::kReduceReplicas) meets_[op] = number;
    }
  }

  Message& message_of(const PipelineOp& send) {
    const bool forward = send.kind == Kind::kSendForward;
    int& number = sent_[cell(send.stage, send.micro, forward)];
    if (number < 0) {
      number = static_cast<int>(messages.size());
      PipelineOp receiver = send;
      receiver.stage = static_cast<std::uint16_t>(send.stage + (forward ? 1 : -1));
      messages.push_back({.facts = {.send = send,
                                    .from = schedule_.holder(send),
                                    .to = schedule_.holder(receiver),
                                    .bytes = message_bytes(send, stage_cost(send))}});
    }
    return messages[static_cast<std::size_t>(number)];
  }

  // What each operation of the rank waits for by its place in the list, and reductions beside.
  void order_rank(int rank) {
    std::vector<int> last;
    for (std::size_t index = 0; index < ops(rank).size(); ++index) {
      const PipelineOp& op = ops(rank)[index];
      const int number = first_task(rank) + static_cast<int>(index);
      before(number) = last;
      last = {number};
      if (runs_beside(op, costs_)) {
        add_reduction(rank, op, number);
      } else if (!costs_.overlap) {
        // The rank waits until the message has arrived.
        const Message* message = made_by(op);
        if (is_transfer(op.kind) && (ordered_ || !is_receive(op))) message = &of_transfer(op);
        if (message != nullptr) last = {message->task};
      }
    }
  }

  void add_reduction(int rank, const PipelineOp& op, int number) {
    std::vector<int>& all = reductions_[static_cast<std::size_t>(rank)];
    const int reduction = add_task({Meaning::What::kReduction, rank, all.size()});
    task(reduction).ticks = op_cost(op, stage_cost(op));
    task(reduction).after = {number};
    if (!all.empty()) task(reduction).after.push_back(all.back());
    all.push_back(reduction);
    reduced_[{op.pipe, op.stage}].push_back(reduction);
  }

  void set_ops(int rank) {
    for (std::size_t index = 0; index < ops(rank).size(); ++index) {
      const PipelineOp& op = ops(rank)[index];
      const int number = first_task(rank) + static_cast<int>(index);
      TimelineTask& one = task(number);
      one.after = before(number);
      if (is_transfer(op.kind) || runs_beside(op, costs_)) {
        one.instant = true;
        continue;
      }
      one.ticks = op_cost(op, stage_cost(op));
      if (const Message* read = read_by(op)) one.after.push_back(read->task);
      if (op.kind == Kind::kReduceTied || op.kind == Kind::kReduceReplicas) meet(op, number);
      if (op.kind != Kind::kOptimizerStep) continue;
      const std::vector<int>& reduced = reduced_[{op.pipe, op.stage}];
      one.after.insert(one.after.end(), reduced.begin(), reduced.end());
    }
  }

  // RT and RR: all their ranks at once, for the longest of their times.
  void meet(const PipelineOp& op, int number) {
    for (const PipelineOp& other : met_ops(schedule_, op)) {
      const std::vector<int>& also = before(meets_.at(other));
      TimelineTask& one = task(number);
      one.after.insert(one.after.end(), also.begin(), also.end());
      one.ticks = std::max(one.ticks, op_cost(other, stage_cost(other)));
    }
  }

  void set_message(const Message& message) {
    const PipelineMessage& facts = message.facts;
    const PipelineLink& link = costs_.link_of.empty()
                                   ? costs_.link
                                   : costs_.link_of[static_cast<std::size_t>(facts.from)]
                                                   [static_cast<std::size_t>(facts.to)];
    TimelineTask& one = task(message.task);
    one.after = {message.issued};
    // Without overlap what is sent is buffered at the other end.
    if (!direct_ && (ordered_ || costs_.overlap)) one.after.push_back(message.posted);
    if (ordered_) {
      one.latency = link.alpha + link.beta * facts.bytes;
      return;
    }
    one.ticks = link.beta * facts.bytes;
    one.latency = link.alpha;
    one.resources = {2 * facts.from, 2 * facts.to + 1};
  }

  // Ordered: a message is behind the one before it in both ranks' queues.
  void set_queues() {
    for (int rank = 0; rank < schedule_.size(); ++rank) {
      int last = -1;
      for (const PipelineOp& op : ops(rank)) {
        if (!is_transfer(op.kind)) continue;
        const int number = of_transfer(op).task;
        if (last >= 0) task(number).after.push_back(last);
        last = number;
      }
    }
  }

  // Who is ready at the same time has a port by sender, then by operation.
  void set_turns() {
    std::vector<const Message*> sorted;
    for (const Message& message : messages) sorted.push_back(&message);
    std::ranges::sort(
        sorted, {}, [](const Message* one) { return std::pair(one->facts.from, one->facts.send); });
    std::int64_t turn = 0;
    for (const Message* message : sorted) task(message->task).order = turn++;
  }

  const PipelineSchedule& schedule_;
  const PipelineCosts& costs_;
  bool direct_;
  bool ordered_;
  std::vector<int> sent_;                 // messages, by cell
  std::vector<std::vector<int>> before_;  // by operation's task: tasks before it in its list
  std::vector<std::vector<int>> reductions_;
  std::vector<int> first_;                                   // by rank
  std::map<PipelineOp, int> meets_;                          // tasks of RT and RR
  std::map<std::pair<int, int>, std::vector<int>> reduced_;  // by pipe and stage
};

// Bytes that ranks have while the tasks run.
class MemoryReplay {
 public:
  MemoryReplay(const PipelineSchedule& schedule, const PipelineCosts& costs,
               const LoweredPipeline& lowered)
      : schedule_(schedule),
        costs_(costs),
        lowered_(lowered),
        kept_(static_cast<std::size_t>(schedule.pipes()) *
              static_cast<std::size_t>(schedule.stages())),
        meters_(schedule.ranks.size()) {
    for (const auto& ops : schedule.ranks) {
      for (const PipelineOp& op : ops) {
        if (op.kind == Kind::kRecompute) recomputed_.insert({op.stage, op.micro});
      }
    }
  }

  std::vector<PipelineMemory> run(const std::vector<TimelineStep>& steps) {
    for (const TimelineStep& step : steps) {
      const auto& meaning = lowered_.meanings[static_cast<std::size_t>(step.task)];
      if (meaning.what == LoweredPipeline::Meaning::What::kMessage) {
        message(lowered_.messages[meaning.index].facts, step.ends);
      } else if (meaning.what == LoweredPipeline::Meaning::What::kOp) {
        const auto& ops = schedule_.ranks[static_cast<std::size_t>(meaning.rank)];
        (step.ends ? end(ops[meaning.index]) : start(ops[meaning.index]));
      }
    }
    std::vector<PipelineMemory> most;
    for (const MemoryMeter& meter : meters_) most.push_back(meter.most());
    return most;
  }

 private:
  using Kind = PipelineOpKind;
  // In contexts of a stage, in bytes.
  struct Kept {
    std::int64_t now = 0;
    std::int64_t most = 0;
  };

  MemoryMeter& meter(int rank) { return meters_[static_cast<std::size_t>(rank)]; }
  const PipelineStageCost& stage_cost(const PipelineOp& op) const {
    return costs_.stages[op.stage];
  }

  void message(const PipelineMessage& facts, bool ends) {
    if (ends) meter(facts.from).sends(-facts.bytes);
    if (!ends && costs_.links == PipelineLinks::kDirect) meter(facts.to).receives(facts.bytes);
  }

  void start(const PipelineOp& op) {
    const PipelineStageCost& stage = stage_cost(op);
    if (op.kind == Kind::kForward) {
      const bool again = recomputed_.contains({op.stage, op.micro});
      keep(op, again ? stage.input_bytes : stage.context_bytes);
    }
    if (op.kind == Kind::kRecompute) keep(op, stage.context_bytes - stage.input_bytes);
    if (!is_transfer(op.kind)) return;
    const PipelineMessage& facts = lowered_.of_transfer(op).facts;
    if (op.kind == Kind::kSendForward || op.kind == Kind::kSendBackward) {
      meter(facts.from).sends(facts.bytes);
    } else {
      meter(facts.to).receives(facts.bytes);
    }
  }

  // What is not needed behind a computation.
  void end(const PipelineOp& op) {
    const PipelineStageCost& stage = stage_cost(op);
    if (op.kind == Kind::kBackwardInput) keep(op, stage.weight_bytes - stage.context_bytes);
    if (op.kind == Kind::kBackwardWeight) keep(op, -stage.weight_bytes);
    if (op.kind == Kind::kBackward) keep(op, -stage.context_bytes);
    if (const auto* read = lowered_.read_by(op)) meter(read->facts.to).receives(-read->facts.bytes);
    if (const auto* made = lowered_.made_by(op)) meter(made->facts.from).sends(made->facts.bytes);
  }

  // The operation's stage has so many bytes more in contexts, in memory that stays the stage's.
  void keep(const PipelineOp& op, std::int64_t bytes) {
    Kept& kept = kept_[op.pipe * static_cast<std::size_t>(schedule_.stages()) + op.stage];
    kept.now += bytes;
    if (kept.now <= kept.most) return;
    meter(schedule_.holder(op)).more_contexts(kept.now - kept.most);
    kept.most = kept.now;
  }

  const PipelineSchedule& schedule_;
  const PipelineCosts& costs_;
  const LoweredPipeline& lowered_;
  std::vector<Kept> kept_;  // by pipe and stage
  std::vector<MemoryMeter> meters_;
  std::set<std::pair<int, int>> recomputed_;  // stages and micro-batches that have R
};

Result<PipelineSimulation> run_lowered(const PipelineSchedule& schedule,
                                       const PipelineCosts& costs) {
  const LoweredPipeline lowered(schedule, costs);
  auto ran = run_timeline(lowered.tasks, 2 * schedule.size());
  if (!ran.has_value()) {
    return Status(Code::kInternal, "pipeline schedule: " + std::string(ran.error().message()));
  }
  const Timeline& timeline = ran.value();
  PipelineSimulation result;
  result.makespan = timeline.makespan;
  for (int rank = 0; rank < schedule.size(); ++rank) {
    const auto begin = timeline.spans.begin() + lowered.first_task(rank);
    const auto count = schedule.ranks[static_cast<std::size_t>(rank)].size();
    std::vector<PipelineSpan>& spans = result.spans.emplace_back();
    std::int64_t& busy = result.busy.emplace_back();
    for (auto span = begin; span != begin + static_cast<std::ptrdiff_t>(count); ++span) {
      spans.push_back({span->begin, span->end});
      busy += spans.back().ticks();
    }
    std::vector<PipelineSpan>& reductions = result.reductions.emplace_back();
    for (const int task : lowered.reductions(rank)) {
      const TimelineSpan& span = timeline.spans[static_cast<std::size_t>(task)];
      reductions.push_back({span.begin, span.end});
    }
  }
  for (const TimelineStep& step : timeline.steps) {
    const auto number = static_cast<std::size_t>(step.task);
    const auto& meaning = lowered.meanings[number];
    if (step.ends || meaning.what != LoweredPipeline::Meaning::What::kMessage) continue;
    PipelineMessage facts = lowered.messages[meaning.index].facts;
    for (const int other : lowered.tasks[number].after) {
      facts.ready = std::max(facts.ready, timeline.spans[static_cast<std::size_t>(other)].end);
    }
    facts.span = {timeline.spans[number].begin, timeline.spans[number].end};
    result.messages.push_back(facts);
  }
  result.memory = MemoryReplay(schedule, costs, lowered).run(timeline.steps);
  return result;
}

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
  return run_lowered(schedule, costs);
}

}  // namespace gradwire
