#include "trainer/pipeline/progress.h"

#include <algorithm>
#include <optional>

#include "base/text.h"

namespace gradwire {
namespace {

PipelineOp same_at(const PipelineOp& op, PipelineOpKind kind, int stage) {
  PipelineOp other = op;
  other.kind = kind;
  other.stage = static_cast<std::uint16_t>(stage);
  return other;
}

// One run without time.
class TimelessRun {
 public:
  TimelessRun(const PipelineSchedule& schedule, PipelineLinks links)
      : schedule_(schedule),
        links_(links),
        heads_(schedule.ranks.size(), 0),
        done_(static_cast<std::size_t>(schedule.stages()) *
              static_cast<std::size_t>(schedule.micro_batches)) {}

  std::vector<BlockedRank> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < schedule_.size(); ++rank) {
        while (step(rank)) moved = true;
      }
    }
    std::vector<BlockedRank> blocked;
    for (int rank = 0; rank < schedule_.size(); ++rank) {
      if (const PipelineOp* op = head(rank)) blocked.push_back(report(rank, *op));
    }
    return blocked;
  }

 private:
  // Which kinds are done, of a stage and a micro-batch: a bit for each.
  using Kinds = std::uint16_t;
  static constexpr Kinds bit(PipelineOpKind kind) {
    return static_cast<Kinds>(1U << static_cast<unsigned>(kind));
  }
  Kinds& done(const PipelineOp& op) {
    return done_[op.stage * static_cast<std::size_t>(schedule_.micro_batches) + op.micro];
  }
  bool is_done(const PipelineOp& op) {
    const Kinds kinds = done(op);
    // The gradient of a stage's inputs comes from B or I.
    if (gives_input_gradient(op.kind)) {
      return (kinds & (bit(PipelineOpKind::kBackward) | bit(PipelineOpKind::kBackwardInput))) != 0;
    }
    return (kinds & bit(op.kind)) != 0;
  }

  const PipelineOp* head(int rank) const {
    const auto at = static_cast<std::size_t>(rank);
    const auto& ops = schedule_.ranks[at];
    return heads_[at] < ops.size() ? &ops[heads_[at]] : nullptr;
  }
  void finish(int rank) {
    const PipelineOp& op = *head(rank);
    if (op.micro != PipelineOp::kNoMicro) done(op) |= bit(op.kind);
    ++heads_[static_cast<std::size_t>(rank)];
  }

  // What the neighbouring stage, or the link to it, has to do first.
  std::optional<PipelineOp> from_neighbour(const PipelineOp& op) const {
    const bool forward = op.kind == PipelineOpKind::kForward;
    const int stage = op.stage + (forward ? -1 : 1);
    if (stage < 0 || stage >= schedule_.stages()) return std::nullopt;
    const PipelineOp made =
        same_at(op, forward ? PipelineOpKind::kForward : PipelineOpKind::kBackward, stage);
    if (links_ == PipelineLinks::kDirect || schedule_.holder(made) == schedule_.holder(op)) {
      return made;
    }
    return same_at(op, forward ? PipelineOpKind::kSendForward : PipelineOpKind::kSendBackward,
                   stage);
  }

  // What a computation waits for; nullopt: nothing.
  std::optional<PipelineOp> missing_of(const PipelineOp& op) {
    std::optional<PipelineOp> own;
    std::optional<PipelineOp> other;
    switch (op.kind) {
      case PipelineOpKind::kForward: other = from_neighbour(op); break;
      case PipelineOpKind::kBackward:
      case PipelineOpKind::kBackwardInput:
        own = same_at(op, PipelineOpKind::kForward, op.stage);
        other = from_neighbour(op);
        break;
      case PipelineOpKind::kRecompute: own = same_at(op, PipelineOpKind::kForward, op.stage); break;
      case PipelineOpKind::kBackwardWeight:
        own = same_at(op, PipelineOpKind::kBackwardInput, op.stage);
        break;
      default: break;
    }
    if (own && !is_done(*own)) return own;
    if (other && !is_done(*other)) return other;
    return std::nullopt;
  }

  bool must_meet(PipelineOpKind kind) const {
    if (is_transfer(kind)) return links_ == PipelineLinks::kOrdered;
    return kind == PipelineOpKind::kReduceTied || kind == PipelineOpKind::kReduceReplicas;
  }

  // The first of those that have to be met and are not at the head of their rank.
  std::optional<PipelineOp> absent_of(const PipelineOp& op) const {
    for (const PipelineOp& other : met_ops(schedule_, op)) {
      const PipelineOp* there = head(schedule_.holder(other));
      if (there == nullptr || *there != other) return other;
    }
    return std::nullopt;
  }

  std::optional<PipelineOp> awaited_by(const PipelineOp& op) {
    return must_meet(op.kind) ? absent_of(op) : missing_of(op);
  }

  bool step(int rank) {
    const PipelineOp* op = head(rank);
    if (op == nullptr || awaited_by(*op)) return false;
    if (must_meet(op->kind)) {
      for (const PipelineOp& other : met_ops(schedule_, *op)) finish(schedule_.holder(other));
    }
    finish(rank);
    return true;
  }

  BlockedRank report(int rank, const PipelineOp& op) {
    const PipelineOp missing = awaited_by(op).value_or(op);
    return {.rank = rank,
            .index = heads_[static_cast<std::size_t>(rank)],
            .op = op,
            .missing = missing,
            .holder = schedule_.holder(missing)};
  }

  const PipelineSchedule& schedule_;
  PipelineLinks links_;
  std::vector<std::size_t> heads_;  // by rank: the operation that it stands before
  std::vector<Kinds> done_;         // by stage and micro-batch, which is on one pipe
};

}  // namespace

std::string_view to_string(PipelineLinks links) {
  switch (links) {
    case PipelineLinks::kDirect: return "direct";
    case PipelineLinks::kTagged: return "tagged";
    case PipelineLinks::kOrdered: return "ordered";
  }
  return "?";
}

std::string to_string(const BlockedRank& blocked) {
  return format("rank %d waits at %s (operation %zu) for %s of rank %d", blocked.rank,
                to_string(blocked.op).c_str(), blocked.index, to_string(blocked.missing).c_str(),
                blocked.holder);
}

std::vector<PipelineOp> met_ops(const PipelineSchedule& schedule, const PipelineOp& op) {
  std::vector<PipelineOp> met;
  const int last = schedule.stages() - 1;
  const auto add = [&](const PipelineOp& other) {
    if (schedule.holder(other) != schedule.holder(op)) met.push_back(other);
  };
  switch (op.kind) {
    case PipelineOpKind::kSendForward:
      if (op.stage < last) add(same_at(op, PipelineOpKind::kReceiveForward, op.stage + 1));
      break;
    case PipelineOpKind::kReceiveForward:
      if (op.stage > 0) add(same_at(op, PipelineOpKind::kSendForward, op.stage - 1));
      break;
    case PipelineOpKind::kSendBackward:
      if (op.stage > 0) add(same_at(op, PipelineOpKind::kReceiveBackward, op.stage - 1));
      break;
    case PipelineOpKind::kReceiveBackward:
      if (op.stage < last) add(same_at(op, PipelineOpKind::kSendBackward, op.stage + 1));
      break;
    case PipelineOpKind::kReduceTied:
      if (op.stage == 0 || op.stage == last) add(same_at(op, op.kind, last - op.stage));
      break;
    case PipelineOpKind::kReduceReplicas:
      for (int pipe = 0; pipe < schedule.pipes(); ++pipe) {
        PipelineOp other = op;
        other.pipe = static_cast<std::uint8_t>(pipe);
        if (pipe != op.pipe) add(other);
      }
      break;
    default: break;
  }
  return met;
}

std::vector<BlockedRank> blocked_frontier(const PipelineSchedule& schedule, PipelineLinks links) {
  return TimelessRun(schedule, links).run();
}

}  // namespace gradwire
