#include "trainer/pipeline/lower.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>

#include "trainer/pipeline/check.h"
#include "trainer/pipeline/simulate.h"

namespace gradwire {
namespace {

using Ops = std::vector<PipelineOp>;

// What is sent has been made of some version of the weights, and has none itself.
PipelineOp transfer_of(PipelineOp op, PipelineOpKind kind) {
  op.kind = kind;
  op.version = 0;
  return op;
}

// Puts the send, if any, behind what makes the message.
void add_send(const PipelineSchedule& schedule, const PipelineOp& op, Ops& ops) {
  const bool forward = op.kind == PipelineOpKind::kForward;
  if (!forward && !gives_input_gradient(op.kind)) return;
  const PipelineOp send =
      transfer_of(op, forward ? PipelineOpKind::kSendForward : PipelineOpKind::kSendBackward);
  if (!met_ops(schedule, send).empty()) ops.push_back(send);
}

// The receive, if any, of what `op` reads.
void add_receive(const PipelineSchedule& schedule, const PipelineOp& op, Ops& ops) {
  const bool forward = op.kind == PipelineOpKind::kForward;
  if (!forward && !gives_input_gradient(op.kind)) return;
  const PipelineOp receive =
      transfer_of(op, forward ? PipelineOpKind::kReceiveForward : PipelineOpKind::kReceiveBackward);
  if (!met_ops(schedule, receive).empty()) ops.push_back(receive);
}

// A receive is posted one computation ahead.
Ops tagged_ops(const PipelineSchedule& schedule, const Ops& ops) {
  Ops computations;
  std::ranges::copy_if(ops, std::back_inserter(computations),
                       [](const PipelineOp& op) { return is_compute(op.kind); });
  Ops lowered;
  std::size_t begun = 0;
  std::size_t posted = 0;  // computations whose receives are
  for (const PipelineOp& op : ops) {
    if (is_compute(op.kind)) {
      ++begun;
      while (posted < std::min(begun + 1, computations.size())) {
        add_receive(schedule, computations[posted++], lowered);
      }
    }
    lowered.push_back(op);
    add_send(schedule, op, lowered);
  }
  return lowered;
}

// A message's place in the list of all.
struct ListedMessage {
  std::int64_t end = 0;  // of what makes it
  PipelineOp send = {};
  auto key() const { return std::tuple(end, send.micro, send.stage, send.kind, send.pipe); }
};

Result<PipelineSimulation> unit_run(const PipelineSchedule& schedule) {
  return simulate_pipeline(schedule, even_costs(schedule.stages(), 1, 1, 1));
}

std::vector<ListedMessage> list_messages(const PipelineSchedule& schedule,
                                         const PipelineSimulation& run) {
  std::vector<ListedMessage> list;
  Ops send;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      send.clear();
      add_send(schedule, schedule.ranks[rank][i], send);
      for (const PipelineOp& op : send) list.push_back({run.spans[rank][i].end, op});
    }
  }
  std::ranges::sort(list, {}, &ListedMessage::key);
  return list;
}

Result<PipelineSchedule> ordered(const PipelineSchedule& schedule) {
  GW_ASSIGN(const PipelineSimulation run, unit_run(schedule));
  PipelineSchedule lowered = schedule;
  for (Ops& ops : lowered.ranks) ops.clear();
  std::vector<std::size_t> next(schedule.ranks.size(), 0);  // by rank: what is copied so far
  // Copies what starts before `time`.
  const auto copy = [&](int rank, std::int64_t time) {
    const auto at = static_cast<std::size_t>(rank);
    const Ops& ops = schedule.ranks[at];
    while (next[at] < ops.size() && run.spans[at][next[at]].begin < time) {
      lowered.ranks[at].push_back(ops[next[at]++]);
    }
  };
  for (const ListedMessage& message : list_messages(schedule, run)) {
    const PipelineOp receive = met_ops(schedule, message.send).front();
    for (const PipelineOp& end : {message.send, receive}) {
      const int rank = schedule.holder(end);
      copy(rank, message.end);
      lowered.ranks[static_cast<std::size_t>(rank)].push_back(end);
    }
  }
  for (int rank = 0; rank < schedule.size(); ++rank) copy(rank, INT64_MAX);
  return lowered;
}

// What ends a step, for one rank.
class StepOps {
 public:
  StepOps(const PipelineSchedule& schedule, const PipelineStepOps& wanted)
      : schedule_(schedule), wanted_(wanted) {}

  Ops add(const Ops& ops) const {
    Ops whole;
    Ops late;
    Ops steps;
    const bool one_pipe = schedule_.pipes() == 1;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const bool is_last = is_last_gradient(ops, i);
      if (wanted_.sharded && (i == 0 || !same_stage(ops[i - 1], ops[i]))) {
        whole.push_back(of_stage(ops[i], PipelineOpKind::kUnshard));
      }
      whole.push_back(ops[i]);
      if (wanted_.sharded && (i + 1 == ops.size() || !same_stage(ops[i], ops[i + 1]))) {
        whole.push_back(of_stage(ops[i], PipelineOpKind::kReshard));
      }
      if (!is_last) continue;
      const bool at_once = one_pipe && !is_tied(ops[i]);
      for (const PipelineOp& reduction : reductions_of(ops[i])) {
        (at_once ? whole : late).push_back(reduction);
      }
      if (wanted_.step) steps.push_back(of_stage(ops[i], PipelineOpKind::kOptimizerStep));
    }
    if (!one_pipe) std::ranges::stable_sort(late, {}, place_among_pipes);
    whole.insert(whole.end(), late.begin(), late.end());
    whole.insert(whole.end(), steps.begin(), steps.end());
    return whole;
  }

 private:
  // In their order.
  Ops reductions_of(const PipelineOp& op) const {
    Ops all;
    if (is_tied(op)) all.push_back(of_stage(op, PipelineOpKind::kReduceTied));
    if (wanted_.replicas && schedule_.pipes() > 1) {
      all.push_back(of_stage(op, PipelineOpKind::kReduceReplicas));
    }
    if (wanted_.reduce) all.push_back(of_stage(op, PipelineOpKind::kReduceGradients));
    return all;
  }
  static std::tuple<bool, int> place_among_pipes(const PipelineOp& reduction) {
    const bool tied = reduction.kind == PipelineOpKind::kReduceTied;
    return {!tied, tied ? reduction.pipe : reduction.stage};
  }
  static bool same_stage(const PipelineOp& a, const PipelineOp& b) {
    return a.stage == b.stage && a.pipe == b.pipe;
  }
  static PipelineOp of_stage(const PipelineOp& op, PipelineOpKind kind) {
    return {.kind = kind, .pipe = op.pipe, .stage = op.stage};
  }
  bool is_tied(const PipelineOp& op) const {
    return wanted_.tied && schedule_.stages() > 1 &&
           (op.stage == 0 || op.stage == schedule_.stages() - 1);
  }
  static bool is_last_gradient(const Ops& ops, std::size_t i) {
    return gives_weight_gradient(ops[i].kind) &&
           std::none_of(ops.begin() + static_cast<std::ptrdiff_t>(i) + 1, ops.end(),
                        [&](const PipelineOp& later) {
                          return gives_weight_gradient(later.kind) && same_stage(later, ops[i]);
                        });
  }

  const PipelineSchedule& schedule_;
  const PipelineStepOps& wanted_;
};

// The forward of one rank's list. Parameters are gathered only where a forward reads them.
Ops forward_ops(const Ops& ops) {
  Ops kept;
  std::map<std::pair<int, int>, std::size_t> gathered;  // by pipe and stage: a place in `kept`
  std::vector<bool> dropped;                            // of `kept`
  for (const PipelineOp& op : ops) {
    const std::pair<int, int> stage{op.pipe, op.stage};
    const bool unread = op.kind == PipelineOpKind::kReshard && gathered.contains(stage);
    switch (op.kind) {
      case PipelineOpKind::kForward: gathered.erase(stage); break;
      case PipelineOpKind::kUnshard: gathered[stage] = kept.size(); break;
      case PipelineOpKind::kReshard:
        if (unread) dropped[gathered.extract(stage).mapped()] = true;
        break;
      case PipelineOpKind::kSendForward:
      case PipelineOpKind::kReceiveForward: break;
      default: continue;
    }
    kept.push_back(op);
    dropped.push_back(unread);
  }
  Ops read;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (!dropped[i]) read.push_back(kept[i]);
  }
  return read;
}

}  // namespace

PipelineSchedule forward_part(const PipelineSchedule& schedule) {
  PipelineSchedule part = schedule;
  for (Ops& ops : part.ranks) ops = forward_ops(ops);
  return part;
}

PipelineSchedule with_step_ops(const PipelineSchedule& schedule, const PipelineStepOps& ops) {
  PipelineSchedule whole = schedule;
  const StepOps step(schedule, ops);
  for (Ops& rank : whole.ranks) rank = step.add(rank);
  return whole;
}

Result<PipelineSchedule> lower_pipeline(const PipelineSchedule& schedule, PipelineLinks links) {
  GW_TRY(check_pipeline(schedule).status());
  if (links == PipelineLinks::kDirect) return schedule;
  if (links == PipelineLinks::kOrdered) return ordered(schedule);
  PipelineSchedule lowered = schedule;
  for (Ops& ops : lowered.ranks) ops = tagged_ops(schedule, ops);
  return lowered;
}

}  // namespace gradwire
