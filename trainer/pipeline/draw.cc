#include "trainer/pipeline/draw.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/text.h"

namespace gradwire {
namespace {

// Calls `visit` for each operation that takes its rank time.
void each_span(const PipelineSchedule& schedule, const PipelineSimulation& run,
               const std::function<void(std::size_t, const PipelineOp&, PipelineSpan)>& visit) {
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      const PipelineSpan span = run.spans[rank][i];
      if (span.ticks() > 0) visit(rank, schedule.ranks[rank][i], span);
    }
  }
}

// Of an operation in its rank's row: without the stage where a rank has one alone.
std::string drawn_name(const PipelineSchedule& schedule, const PipelineOp& op) {
  const std::string name = to_string(op);
  const bool one_stage = schedule.stages() * schedule.pipes() == schedule.size();
  return one_stage ? name.substr(std::to_string(op.stage).size()) : name;
}

std::string_view fill_of(PipelineOpKind kind) {
  switch (kind) {
    case PipelineOpKind::kForward: return "#6ea8dc";
    case PipelineOpKind::kBackward: return "#7fc08a";
    case PipelineOpKind::kBackwardInput: return "#a7d8a0";
    case PipelineOpKind::kBackwardWeight: return "#4f9d69";
    case PipelineOpKind::kRecompute: return "#b9d2ea";
    case PipelineOpKind::kSendForward:
    case PipelineOpKind::kReceiveForward:
    case PipelineOpKind::kSendBackward:
    case PipelineOpKind::kReceiveBackward: return "#e6b96a";
    case PipelineOpKind::kReduceGradients:
    case PipelineOpKind::kReduceTied:
    case PipelineOpKind::kReduceReplicas: return "#d98880";
    case PipelineOpKind::kUnshard:
    case PipelineOpKind::kReshard: return "#c9a5d6";
    case PipelineOpKind::kOptimizerStep: return "#9a9a9a";
    case PipelineOpKind::kStashWeights:
    case PipelineOpKind::kDropWeights: break;
  }
  return "#cccccc";
}

std::string trace_event(const std::string& name, std::size_t rank, int thread, PipelineSpan span) {
  return format(",\n{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%zu,\"tid\":%d,\"ts\":%lld,\"dur\":%lld}",
                name.c_str(), rank, thread, static_cast<long long>(span.begin),
                static_cast<long long>(span.ticks()));
}

std::string trace_name(const char* what, std::size_t rank, int thread, const std::string& name) {
  return format(
      "%s{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%zu,\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
      rank == 0 && thread == 0 && what[0] == 'p' ? "" : ",\n", what, rank, thread, name.c_str());
}

}  // namespace

std::string pipeline_picture(const PipelineSchedule& schedule, const PipelineSimulation& run,
                             int most_columns) {
  std::int64_t unit = run.makespan;  // ticks of a column
  std::size_t width = 1;             // characters of one
  each_span(schedule, run, [&](std::size_t, const PipelineOp& op, PipelineSpan span) {
    unit = std::gcd(std::gcd(unit, span.begin), span.end);
    width = std::max(width, drawn_name(schedule, op).size());
  });
  if (unit == 0) unit = 1;
  const std::int64_t all = run.makespan / unit;
  const std::int64_t shown = std::min<std::int64_t>(all, most_columns);
  const auto column = static_cast<std::size_t>(shown) * (width + 1);
  std::vector<std::string> rows(schedule.ranks.size());
  for (std::string& row : rows) {
    row.assign(column, ' ');
    for (std::size_t at = 0; at < column; at += width + 1) row[at] = '.';
  }
  each_span(schedule, run, [&](std::size_t rank, const PipelineOp& op, PipelineSpan span) {
    const std::string name = drawn_name(schedule, op);
    for (std::int64_t at = span.begin / unit; at < std::min(span.end / unit, shown); ++at) {
      const auto place = static_cast<std::size_t>(at) * (width + 1);
      const bool first = at == span.begin / unit;
      rows[rank].replace(place, first ? name.size() : 1, first ? name : "-");
    }
  });
  std::string picture;
  const int digits = static_cast<int>(std::to_string(rows.size() - 1).size());
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    std::string& row = rows[rank];
    if (shown < all) row += "...";
    row.erase(row.find_last_not_of(' ') + 1);
    picture += format("rank %*zu: ", digits, rank) + row + "\n";
  }
  return picture;
}

std::string pipeline_svg(const PipelineSchedule& schedule, const PipelineSimulation& run) {
  constexpr double kWide = 1000;
  constexpr double kLeft = 70;  // for the ranks' names
  constexpr int kRow = 26;
  constexpr double kCharacter = 7;
  const double scale =
      (kWide - kLeft) / static_cast<double>(std::max<std::int64_t>(run.makespan, 1));
  std::string svg = format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %zu\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n",
      kWide, schedule.ranks.size() * kRow);
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    svg += format("<text x=\"4\" y=\"%zu\">rank %zu</text>\n", rank * kRow + 17, rank);
  }
  each_span(schedule, run, [&](std::size_t rank, const PipelineOp& op, PipelineSpan span) {
    const double x = kLeft + static_cast<double>(span.begin) * scale;
    const double wide = static_cast<double>(span.ticks()) * scale;
    const std::string name = drawn_name(schedule, op);
    svg += format(
        "<g><title>%s, %lld to %lld</title><rect x=\"%.2f\" y=\"%zu\" width=\"%.2f\" "
        "height=\"22\" fill=\"%s\" stroke=\"#ffffff\"/>",
        to_string(op).c_str(), static_cast<long long>(span.begin), static_cast<long long>(span.end),
        x, rank * kRow + 2, wide, std::string(fill_of(op.kind)).c_str());
    if (static_cast<double>(name.size()) * kCharacter < wide) {
      svg += format("<text x=\"%.2f\" y=\"%zu\">%s</text>", x + 3, rank * kRow + 17, name.c_str());
    }
    svg += "</g>\n";
  });
  return svg + "</svg>\n";
}

std::string pipeline_trace(const PipelineSchedule& schedule, const PipelineSimulation& run) {
  constexpr int kOperations = 0;
  constexpr int kMessages = 1;
  constexpr int kReductions = 2;
  std::string trace = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    trace += trace_name("process_name", rank, kOperations, "rank " + std::to_string(rank));
    trace += trace_name("thread_name", rank, kOperations, "operations");
    trace += trace_name("thread_name", rank, kMessages, "messages sent");
    trace += trace_name("thread_name", rank, kReductions, "reductions");
  }
  each_span(schedule, run, [&](std::size_t rank, const PipelineOp& op, PipelineSpan span) {
    trace += trace_event(to_string(op), rank, kOperations, span);
  });
  for (const PipelineMessage& message : run.messages) {
    trace += trace_event(message_text(message.send, message.to),
                         static_cast<std::size_t>(message.from), kMessages, message.span);
  }
  for (std::size_t rank = 0; rank < run.reductions.size(); ++rank) {
    for (const PipelineSpan& span : run.reductions[rank]) {
      trace += trace_event(std::string(to_string(PipelineOpKind::kReduceGradients)), rank,
                           kReductions, span);
    }
  }
  return trace + "\n]}\n";
}

}  // namespace gradwire
