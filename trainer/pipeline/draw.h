// Pictures of a simulated schedule: in text, as SVG, and as a trace for chrome://tracing and
// Perfetto. `run` is simulate_pipeline()'s of `schedule`.
#pragma once

#include <string>

#include "trainer/pipeline/schedule.h"
#include "trainer/pipeline/simulate.h"

namespace gradwire {

// A line for each rank; a column is the longest time that divides all beginnings and ends. An
// operation has its name ("F3"; "5F3" where ranks have several stages) in its first column and '-'
// in the others; '.' is idle. At most `most_columns` columns (at least 1), then "...".
std::string pipeline_picture(const PipelineSchedule& schedule, const PipelineSimulation& run,
                             int most_columns = 120);

// A whole SVG document, 1,000 units wide: a row for each rank, a box for each operation that takes
// time, with its name as a tooltip and, where there is room, inside.
std::string pipeline_svg(const PipelineSchedule& schedule, const PipelineSimulation& run);

// JSON of the Trace Event Format, "X" events: a process for each rank, with operations, messages
// that it sends, and reductions beside it as threads. A tick is a microsecond.
std::string pipeline_trace(const PipelineSchedule& schedule, const PipelineSimulation& run);

}  // namespace gradwire
