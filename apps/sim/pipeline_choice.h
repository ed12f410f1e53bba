// The schedules of pipelines that commands are given by name, or in files of users' own.
#pragma once

#include <string>
#include <vector>

#include "gradwire/status.h"
#include "trainer/pipeline/schedule.h"

namespace gradwire {

// "gpipe", "1f1b", ...: what is generated, for completion.
std::vector<std::string> pipeline_names();

// `text`: as PipelineSpec::parse(); of file[PATH] the file, which must have `ranks` ranks and
// `micro_batches` micro-batches where these are above 0. kInvalidArgument: as parse(),
// generate_pipeline() and parse_pipeline(), a file that cannot be read or has other numbers.
// `steps`: as generate_pipeline() has it, of a schedule without a flush; others have one.
Result<PipelineSchedule> choose_pipeline(const std::string& text, int ranks, int micro_batches,
                                         int steps = 1);

}  // namespace gradwire
