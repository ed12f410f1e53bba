// The timeline of a step that `gradwire plan search` found: in text, and as a trace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "planner/cost/strategy_cost.h"
#include "planner/search/partitioners.h"

namespace gradwire {

// What a device or a stage does for a while.
struct TimelineBar {
  enum class Kind : std::uint8_t { kForward, kBackward, kSend, kReduce };
  int row = 0;  // the device or stage
  Kind kind = Kind::kForward;
  std::string name;
  std::int64_t begin = 0;  // nanoseconds
  std::int64_t end = 0;
};

struct StepTimeline {
  std::string rows;  // what a row is: "device"
  int count = 0;     // of rows
  std::int64_t ticks = 0;
  std::vector<TimelineBar> bars = {};
};

// Of each device. Errors as SimulatedCost::lower() and run_timeline().
Result<StepTimeline> placement_timeline(SimulatedCost& cost, const OperatorStrategy& strategy);
// Of each stage, all of whose devices do the same.
StepTimeline stages_timeline(const StagesRun& run);

// A line for each row, the first 32 of them, and what the marks are: F and B where computation has
// half of a column or more, r where reductions have, f and b for less of it, else '.'.
std::string timeline_picture(const StepTimeline& step);
// JSON of the Trace Event Format: a process for each row, with operators, messages that it sends
// and reductions as threads. Microseconds.
std::string timeline_trace(const StepTimeline& step);

}  // namespace gradwire
