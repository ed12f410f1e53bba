#include "apps/plan/plan_timeline.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "apps/sim/sim_text.h"
#include "base/text.h"
#include "timeline/timeline.h"

namespace gradwire {
namespace {

constexpr std::size_t kColumns = 72;
constexpr double kSeconds = 1e-9;

TimelineBar::Kind bar_kind(StrategyTask::Kind kind) {
  switch (kind) {
    case StrategyTask::Kind::kForward: return TimelineBar::Kind::kForward;
    case StrategyTask::Kind::kBackward: return TimelineBar::Kind::kBackward;
    case StrategyTask::Kind::kSend: return TimelineBar::Kind::kSend;
    case StrategyTask::Kind::kReduce: break;
  }
  return TimelineBar::Kind::kReduce;
}

const char* bar_word(TimelineBar::Kind kind) {
  constexpr std::array<const char*, 4> kWords{"forward", "backward", "send", "reduce"};
  return kWords[static_cast<std::size_t>(kind)];
}

// Columns that bars take, by kind.
using ColumnShares = std::array<double, 4>;

char mark_of(const ColumnShares& shares) {
  constexpr double kMost = 0.5;
  const double forward = shares[static_cast<std::size_t>(TimelineBar::Kind::kForward)];
  const double backward = shares[static_cast<std::size_t>(TimelineBar::Kind::kBackward)];
  if (forward + backward >= kMost) return forward >= backward ? 'F' : 'B';
  if (shares[static_cast<std::size_t>(TimelineBar::Kind::kReduce)] >= kMost) return 'r';
  if (forward + backward == 0) return '.';
  return forward >= backward ? 'f' : 'b';
}

std::string picture_row(const StepTimeline& step, int row) {
  std::vector<ColumnShares> columns(kColumns);
  const double column = static_cast<double>(step.ticks) / kColumns;
  for (const TimelineBar& bar : step.bars) {
    if (bar.row != row || bar.end == bar.begin) continue;
    const double begin = static_cast<double>(bar.begin) / column;
    const double end = static_cast<double>(bar.end) / column;
    for (auto at = static_cast<std::size_t>(begin); at < kColumns; ++at) {
      const auto left = static_cast<double>(at);
      if (left >= end) break;
      columns[at][static_cast<std::size_t>(bar.kind)] +=
          std::min(end, left + 1) - std::max(begin, left);
    }
  }
  std::string text;
  for (const ColumnShares& shares : columns) text += mark_of(shares);
  return text;
}

}  // namespace

Result<StepTimeline> placement_timeline(SimulatedCost& cost, const OperatorStrategy& strategy) {
  GW_ASSIGN(const LoweredStrategy lowered, cost.lower(strategy));
  GW_ASSIGN(const Timeline timeline, run_timeline(lowered.tasks, cost.cluster().resources()));
  StepTimeline step{
      .rows = "device", .count = cost.cluster().devices(), .ticks = timeline.makespan};
  for (std::size_t i = 0; i < lowered.tasks.size(); ++i) {
    const StrategyTask& task = lowered.meaning[i];
    const TimelineSpan& span = timeline.spans[i];
    const TimelineBar::Kind kind = bar_kind(task.kind);
    TimelineBar bar{.row = task.device,
                    .kind = kind,
                    .name = cost.graph().at(task.operation).name + " " + bar_word(kind),
                    .begin = span.begin,
                    .end = span.end};
    if (kind == TimelineBar::Kind::kSend) bar.name += format(" to %d", task.to);
    if (kind != TimelineBar::Kind::kReduce) {
      step.bars.push_back(std::move(bar));
      continue;
    }
    for (const int device : task.ring) {
      bar.row = device;
      step.bars.push_back(bar);
    }
  }
  return step;
}

StepTimeline stages_timeline(const StagesRun& run) {
  StepTimeline step{
      .rows = "stage", .count = run.schedule.size(), .ticks = run.simulation.makespan};
  const auto add = [&step](std::size_t row, TimelineBar::Kind kind, const std::string& name,
                           const PipelineSpan& span) {
    if (span.ticks() == 0) return;
    step.bars.push_back({static_cast<int>(row), kind, name, span.begin, span.end});
  };
  for (std::size_t rank = 0; rank < run.schedule.ranks.size(); ++rank) {
    for (std::size_t i = 0; i < run.schedule.ranks[rank].size(); ++i) {
      const PipelineOp& op = run.schedule.ranks[rank][i];
      if (!is_compute(op.kind)) continue;
      const bool forward = op.kind == PipelineOpKind::kForward;
      const auto kind = forward ? TimelineBar::Kind::kForward : TimelineBar::Kind::kBackward;
      add(rank, kind, format("%s %d", bar_word(kind), op.micro), run.simulation.spans[rank][i]);
    }
    if (rank >= run.simulation.reductions.size()) continue;
    for (const PipelineSpan& span : run.simulation.reductions[rank]) {
      add(rank, TimelineBar::Kind::kReduce, bar_word(TimelineBar::Kind::kReduce), span);
    }
  }
  for (const PipelineMessage& message : run.simulation.messages) {
    add(static_cast<std::size_t>(message.from), TimelineBar::Kind::kSend,
        format("send %d to %d", message.send.micro, message.to), message.span);
  }
  return step;
}

std::string timeline_picture(const StepTimeline& step) {
  constexpr int kMostRows = 32;
  std::string text;
  for (int row = 0; row < std::min(step.count, kMostRows); ++row) {
    text += format("%-6s %4d  %s\n", step.rows.c_str(), row, picture_row(step, row).c_str());
  }
  if (step.count > kMostRows) text += format("and %d others\n", step.count - kMostRows);
  return text + format(
                    "F forward, B backward, in small letters for less than half of a column; r "
                    "reduction, . "
                    "waiting; a column is %s\n",
                    time_text(static_cast<double>(step.ticks) * kSeconds / kColumns).c_str());
}

std::string timeline_trace(const StepTimeline& step) {
  constexpr double kMicroseconds = 1e-3;
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  for (const TimelineBar& bar : step.bars) {
    const bool computes =
        bar.kind == TimelineBar::Kind::kForward || bar.kind == TimelineBar::Kind::kBackward;
    nlohmann::ordered_json event;
    event["name"] = bar.name;
    event["ph"] = "X";
    event["ts"] = static_cast<double>(bar.begin) * kMicroseconds;
    event["dur"] = static_cast<double>(bar.end - bar.begin) * kMicroseconds;
    event["pid"] = bar.row;
    event["tid"] = computes ? "operators" : bar_word(bar.kind);
    events.push_back(std::move(event));
  }
  return nlohmann::ordered_json({{"traceEvents", events}}).dump() + "\n";
}

}  // namespace gradwire
