// Pipeline schedules as text, and as CSV, which PyTorch reads and writes, too. Both ways.
//
//   # a comment: from a '#' at a line's beginning or behind a blank to the line's end
//   pipeline ranks=2 stages=2 micro-batches=3
//   place 0 1                          the rank of each stage; one such line for each pipe
//   layers 3 4                         how many layers each stage has; may be left out
//   rank 0: 0F0 0F1 0B0 0F2 0B1 0B2    the operations of each rank (PipelineOp), in order
//   rank 1: 1F0 1B0 1F1 1B1 1F2 1B2
//
// In CSV a line is a rank and a cell an operation; empty cells are skipped: PyTorch's
// torch.distributed.pipelining writes them where a rank is idle. Names are PyTorch's where it has
// such an operation, and read in either form. The placement and the number of micro-batches are
// those of the operations found.
#pragma once

#include <string>
#include <string_view>

#include "gradwire/status.h"
#include "trainer/pipeline/schedule.h"

namespace gradwire {

std::string pipeline_text(const PipelineSchedule& schedule);
std::string pipeline_csv(const PipelineSchedule& schedule);

// kInvalidArgument names line, column (both from 1), what stands there and what was expected. What
// is read need not be a valid schedule: check.h says so.
Result<PipelineSchedule> parse_pipeline_text(std::string_view text);
Result<PipelineSchedule> parse_pipeline_csv(std::string_view csv);
// By the first line that says something: "pipeline ..." begins a text, all else is CSV.
Result<PipelineSchedule> parse_pipeline(std::string_view text);

}  // namespace gradwire
