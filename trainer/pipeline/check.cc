#include "trainer/pipeline/check.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "base/text.h"
#include "trainer/pipeline/op_table.h"
#include "trainer/pipeline/weights_check.h"

namespace gradwire {
namespace {

constexpr std::size_t kMostShownBlocked = 8;

// One check; each part returns false where it has found a fault.
class ScheduleChecker {
 public:
  ScheduleChecker(const PipelineSchedule& schedule, const PipelineRules& rules)
      : schedule_(schedule), rules_(rules) {}

  PipelineCheck run() {
    if (shape() && enough_operations()) {
      table_ = PipelineOpTable(schedule_.stages(), schedule_.micro_batches);
      pipe_of_.assign(static_cast<std::size_t>(schedule_.micro_batches), -1);
      if (operations() && complete() && orders() && weights() && meetings() && transfers() &&
          progress()) {
        contexts();
        versions();
      }
    }
    return std::move(result_);
  }

 private:
  using Kind = PipelineOpKind;
  using Fault = PipelineFaultKind;

  bool fail(Fault kind, int rank, std::size_t index, const PipelineOp& op, std::string message) {
    result_.fault = PipelineFault{
        .kind = kind, .rank = rank, .index = index, .op = op, .message = std::move(message)};
    return false;
  }
  bool fail_shape(std::string message) {
    return fail(Fault::kShape, -1, PipelineFault::kNowhere, {}, std::move(message));
  }
  bool fail_missing(const PipelineOp& op) {
    const int rank = schedule_.holder(op);
    return fail(Fault::kMissing, rank, PipelineFault::kNowhere, op,
                format("is missing (expected on rank %d)", rank));
  }

  bool shape() {
    const auto& pipes = schedule_.rank_of;
    if (schedule_.micro_batches < 1 || schedule_.micro_batches > kMostMicroBatches) {
      return fail_shape(format("%d micro-batches (expected 1 to %d)", schedule_.micro_batches,
                               kMostMicroBatches));
    }
    if (pipes.empty() || pipes.size() > static_cast<std::size_t>(kMostPipes)) {
      return fail_shape(format("%zu pipes (expected 1 to %d)", pipes.size(), kMostPipes));
    }
    if (schedule_.stages() < 1 || schedule_.stages() > kMostStages) {
      return fail_shape(format("%d stages (expected 1 to %d)", schedule_.stages(), kMostStages));
    }
    std::vector<bool> holds(schedule_.ranks.size(), false);
    for (const auto& pipe : pipes) {
      if (pipe.size() != pipes.front().size()) {
        return fail_shape(format("pipes of %zu and %zu stages (expected as many in each)",
                                 pipes.front().size(), pipe.size()));
      }
      for (const int rank : pipe) {
        if (rank < 0 || rank >= schedule_.size()) {
          return fail_shape(
              format("a stage on rank %d (expected 0 to %d)", rank, schedule_.size() - 1));
        }
        holds[static_cast<std::size_t>(rank)] = true;
      }
    }
    for (std::size_t rank = 0; rank < holds.size(); ++rank) {
      if (!holds[rank]) return fail_shape(format("rank %zu holds no stage (expected one)", rank));
    }
    return true;
  }

  // Else tables by stage and micro-batch would be larger than what was said.
  bool enough_operations() {
    const auto micros = static_cast<std::size_t>(schedule_.micro_batches);
    const auto cells = static_cast<std::size_t>(schedule_.stages()) * micros;
    if (cells <= count_ops(schedule_)) return true;
    std::unordered_set<std::size_t> seen;
    for (const auto& ops : schedule_.ranks) {
      for (const PipelineOp& op : ops) {
        if (op.kind == Kind::kForward) seen.insert(op.stage * micros + op.micro);
      }
    }
    std::size_t cell = 0;
    while (seen.contains(cell)) ++cell;
    return fail_missing({.stage = static_cast<std::uint16_t>(cell / micros),
                         .micro = static_cast<std::uint16_t>(cell % micros)});
  }

  // Each is one of the schedule's, on its rank, and once.
  bool operations() {
    for (int rank = 0; rank < schedule_.size(); ++rank) {
      const auto& ops = schedule_.ranks[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < ops.size(); ++i) {
        if (!known(rank, i, ops[i]) || !placed(rank, i, ops[i]) || !once(rank, i, ops[i])) {
          return false;
        }
      }
    }
    return true;
  }

  bool known(int rank, std::size_t i, const PipelineOp& op) {
    if (op.pipe >= schedule_.pipes() || op.stage >= schedule_.stages()) {
      return fail(Fault::kUnknown, rank, i, op,
                  format("names stage %d of pipe %d (expected %d stages of %d pipes)", op.stage,
                         op.pipe, schedule_.stages(), schedule_.pipes()));
    }
    if (has_micro_batch(op.kind) && op.micro >= schedule_.micro_batches) {
      return fail(
          Fault::kUnknown, rank, i, op,
          format("names micro-batch %d (expected 0 to %d)", op.micro, schedule_.micro_batches - 1));
    }
    if (!has_micro_batch(op.kind) && op.micro != PipelineOp::kNoMicro) {
      return fail(Fault::kUnknown, rank, i, op, "names a micro-batch (expected none)");
    }
    const bool inner = op.stage != 0 && op.stage != schedule_.stages() - 1;
    if (op.kind == Kind::kReduceTied && inner) {
      return fail(Fault::kUnknown, rank, i, op,
                  format("adds tied parameters of stage %d (expected stage 0 or %d)", op.stage,
                         schedule_.stages() - 1));
    }
    return true;
  }

  bool placed(int rank, std::size_t i, const PipelineOp& op) {
    if (schedule_.holder(op) != rank) {
      return fail(Fault::kPlace, rank, i, op,
                  format("is on rank %d (expected rank %d, which holds the stage)", rank,
                         schedule_.holder(op)));
    }
    if (op.micro == PipelineOp::kNoMicro) return true;
    int& pipe = pipe_of_[op.micro];
    if (pipe < 0) pipe = op.pipe;
    if (pipe == op.pipe) return true;
    return fail(Fault::kPlace, rank, i, op,
                format("sends micro-batch %d through pipe %d (expected pipe %d alone)", op.micro,
                       op.pipe, pipe));
  }

  bool once(int rank, std::size_t i, const PipelineOp& op) {
    if (op.micro == PipelineOp::kNoMicro) return true;
    std::int32_t& place = table_.at(op);
    if (place != PipelineOpTable::kAbsent) {
      return fail(Fault::kTwice, rank, i, op,
                  format("is there twice (expected operation %d alone)", place));
    }
    place = static_cast<std::int32_t>(i);
    const bool split = table_.has(Kind::kBackwardInput, op.stage, op.micro) ||
                       table_.has(Kind::kBackwardWeight, op.stage, op.micro);
    if (split && table_.has(Kind::kBackward, op.stage, op.micro)) {
      return fail(Fault::kTwice, rank, i, op,
                  "is there beside the same backward in its other form "
                  "(expected B, or I and W)");
    }
    return true;
  }

  // Calls `visit` for each stage and micro-batch with an operation of its pipe; ends at false.
  template <typename Visit>
  bool each_cell(const Visit& visit) {
    for (int micro = 0; micro < schedule_.micro_batches; ++micro) {
      const int pipe = std::max(pipe_of_[static_cast<std::size_t>(micro)], 0);
      for (int stage = 0; stage < schedule_.stages(); ++stage) {
        PipelineOp op{.pipe = static_cast<std::uint8_t>(pipe),
                      .stage = static_cast<std::uint16_t>(stage),
                      .micro = static_cast<std::uint16_t>(micro)};
        if (!visit(op)) return false;
      }
    }
    return true;
  }

  bool complete() {
    return each_cell([&](PipelineOp op) {
      const auto there = [&](Kind kind) {
        op.kind = kind;
        return table_.has(kind, op.stage, op.micro);
      };
      if (!there(Kind::kForward)) return fail_missing(op);
      const bool input = there(Kind::kBackwardInput);
      const bool weight = there(Kind::kBackwardWeight);
      if (weight && !input) {
        op.kind = Kind::kBackwardInput;
        return fail_missing(op);
      }
      if (input) return there(Kind::kBackwardWeight) || fail_missing(op);
      return there(Kind::kBackward) || fail_missing(op);
    });
  }

  // Of one stage and micro-batch; what is absent is in order. The versions are the forward's, too.
  bool in_order(const PipelineOp& op, Kind first, Kind then) {
    const std::int32_t early = table_.at(first, op.stage, op.micro);
    const std::int32_t late = table_.at(then, op.stage, op.micro);
    if (early == PipelineOpTable::kAbsent || late == PipelineOpTable::kAbsent) return true;
    const int rank = schedule_.holder(op);
    const auto& ops = schedule_.ranks[static_cast<std::size_t>(rank)];
    const PipelineOp& before = ops[static_cast<std::size_t>(early)];
    const PipelineOp& behind = ops[static_cast<std::size_t>(late)];
    if (early > late) {
      return fail(Fault::kOrder, rank, static_cast<std::size_t>(late), behind,
                  format("comes before %s, operation %d (expected behind it)",
                         to_string(before).c_str(), early));
    }
    if (is_compute(first) && is_compute(then) && before.version != behind.version) {
      return fail(Fault::kVersion, rank, static_cast<std::size_t>(late), behind,
                  format("has version %d of the weights (expected %d, that of %s)", behind.version,
                         before.version, to_string(before).c_str()));
    }
    return true;
  }

  bool orders() {
    return each_cell([&](const PipelineOp& op) {
      const Kind backward = table_.input_gradient(op.stage, op.micro);
      return in_order(op, Kind::kForward, backward) &&
             in_order(op, Kind::kBackwardInput, Kind::kBackwardWeight) &&
             in_order(op, Kind::kForward, Kind::kRecompute) &&
             in_order(op, Kind::kRecompute, backward) &&
             in_order(op, Kind::kReceiveForward, Kind::kForward) &&
             in_order(op, Kind::kForward, Kind::kSendForward) &&
             in_order(op, Kind::kReceiveBackward, backward) &&
             in_order(op, backward, Kind::kSendBackward);
    });
  }

  bool weights() {
    const auto stages = static_cast<std::size_t>(schedule_.stages());
    std::vector<StageWeightsCheck> all(static_cast<std::size_t>(schedule_.pipes()) * stages);
    std::vector<std::size_t> last(all.size(), PipelineFault::kNowhere);  // gradient
    const auto number = [&](const PipelineOp& op) { return op.pipe * stages + op.stage; };
    for (const auto& ops : schedule_.ranks) {
      for (const PipelineOp& op : ops) all[number(op)].expect(op.kind, schedule_.pipes());
    }
    for (int rank = 0; rank < schedule_.size(); ++rank) {
      const auto& ops = schedule_.ranks[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < ops.size(); ++i) {
        auto outcome = all[number(ops[i])].walk(ops[i]);
        if (!outcome.message.empty()) {
          return fail(outcome.kind, rank, i, ops[i], std::move(outcome.message));
        }
        if (gives_weight_gradient(ops[i].kind)) last[number(ops[i])] = i;
      }
      for (std::size_t i = 0; i < ops.size(); ++i) {
        if (last[number(ops[i])] != i) continue;
        auto outcome = all[number(ops[i])].end();
        if (!outcome.message.empty()) {
          return fail(outcome.kind, rank, i, ops[i], std::move(outcome.message));
        }
      }
    }
    return true;
  }

  // Gradients are added over all pipes of a stage, or over none.
  bool meetings() {
    const auto stages = static_cast<std::size_t>(schedule_.stages());
    std::vector<int> sums(static_cast<std::size_t>(schedule_.pipes()) * stages);  // RR
    const auto count = [&](const PipelineOp& op) -> int& {
      return sums[op.pipe * stages + op.stage];
    };
    for (const auto& ops : schedule_.ranks) {
      for (const PipelineOp& op : ops) count(op) += op.kind == Kind::kReduceReplicas ? 1 : 0;
    }
    for (const auto& ops : schedule_.ranks) {
      for (const PipelineOp& op : ops) {
        if (op.kind != Kind::kReduceReplicas) continue;
        for (const PipelineOp& other : met_ops(schedule_, op)) {
          if (count(other) == 0) return fail_missing(other);
        }
      }
    }
    return true;
  }

  // Both ends of each transfer are there, and none besides.
  bool transfers() {
    if (rules_.links == PipelineLinks::kDirect && !has_transfers(schedule_)) return true;
    return each_cell([&](PipelineOp op) {
      for (const Kind kind : {Kind::kSendForward, Kind::kReceiveForward, Kind::kSendBackward,
                              Kind::kReceiveBackward}) {
        op.kind = kind;
        if (!transfer(op)) return false;
      }
      return true;
    });
  }

  bool transfer(const PipelineOp& op) {
    const std::int32_t place = table_.at(op);
    const bool there = place != PipelineOpTable::kAbsent;
    const int rank = schedule_.holder(op);
    const bool direct = rules_.links == PipelineLinks::kDirect;
    const bool wanted = !direct && !met_ops(schedule_, op).empty();
    if (there == wanted) return true;
    if (!there) return fail_missing(op);
    return fail(Fault::kTransfer, rank, static_cast<std::size_t>(place), op,
                direct ? "is a transfer (expected none in a schedule that is not lowered)"
                       : "has no other end (expected a neighbouring stage on another rank)");
  }

  bool progress() {
    std::vector<BlockedRank> frontier = blocked_frontier(schedule_, rules_.links);
    if (frontier.empty()) return true;
    std::string all;
    for (std::size_t i = 0; i < std::min(frontier.size(), kMostShownBlocked); ++i) {
      all += (i == 0 ? "" : "; ") + to_string(frontier[i]);
    }
    if (frontier.size() > kMostShownBlocked) {
      all += format("; and %zu more", frontier.size() - kMostShownBlocked);
    }
    const BlockedRank& first = frontier.front();
    fail(Fault::kBlocked, first.rank, first.index, first.op,
         format("never starts, %s links: %s", std::string(to_string(rules_.links)).c_str(),
                all.c_str()));
    result_.fault->frontier = std::move(frontier);
    return false;
  }

  bool contexts() {
    for (int rank = 0; rank < schedule_.size(); ++rank) {
      const auto& ops = schedule_.ranks[static_cast<std::size_t>(rank)];
      int open = 0;
      int most = 0;
      for (std::size_t i = 0; i < ops.size(); ++i) {
        if (gives_weight_gradient(ops[i].kind)) --open;
        if (ops[i].kind != Kind::kForward) continue;
        most = std::max(most, ++open);
        if (rules_.most_contexts > 0 && open > rules_.most_contexts) {
          return fail(Fault::kContexts, rank, i, ops[i],
                      format("opens context %d of its rank (expected at most %d)", open,
                             rules_.most_contexts));
        }
      }
      result_.contexts.push_back(most);
    }
    return true;
  }

  void versions() {
    const auto stages = static_cast<std::size_t>(schedule_.stages());
    for (const auto& ops : schedule_.ranks) {
      std::map<std::size_t, int> now;  // kept beside the newest, by pipe and stage
      int most = 0;
      for (const PipelineOp& op : ops) {
        int& kept = now[op.pipe * stages + op.stage];
        // A copy of the newest is one more when OPT has made another.
        if (op.kind == Kind::kStashWeights) ++kept;
        if (op.kind == Kind::kDropWeights) --kept;
        most = std::max(most, kept);
      }
      result_.versions.push_back(most + 1);
    }
  }

  const PipelineSchedule& schedule_;
  PipelineRules rules_;
  PipelineOpTable table_{0, 0};
  std::vector<int> pipe_of_;  // by micro-batch; -1: no operation of it so far
  PipelineCheck result_;
};

}  // namespace

std::string_view to_string(PipelineFaultKind kind) {
  switch (kind) {
    case PipelineFaultKind::kShape: return "shape";
    case PipelineFaultKind::kUnknown: return "unknown";
    case PipelineFaultKind::kPlace: return "place";
    case PipelineFaultKind::kTwice: return "twice";
    case PipelineFaultKind::kMissing: return "missing";
    case PipelineFaultKind::kOrder: return "order";
    case PipelineFaultKind::kVersion: return "version";
    case PipelineFaultKind::kSharded: return "sharded";
    case PipelineFaultKind::kGradients: return "gradients";
    case PipelineFaultKind::kTransfer: return "transfer";
    case PipelineFaultKind::kContexts: return "contexts";
    case PipelineFaultKind::kBlocked: return "blocked";
  }
  return "?";
}

Status PipelineFault::status() const {
  if (rank < 0) return {Code::kInvalidArgument, "pipeline schedule: " + message};
  std::string place = to_string(op);
  if (index != kNowhere) place += format(" (rank %d, operation %zu)", rank, index);
  return {Code::kInvalidArgument, "pipeline schedule: " + place + " " + message};
}

PipelineCheck check_pipeline(const PipelineSchedule& schedule, const PipelineRules& rules) {
  PipelineCheck result = ScheduleChecker(schedule, rules).run();
  if (!result.ok()) result.contexts.clear();
  return result;
}

}  // namespace gradwire
