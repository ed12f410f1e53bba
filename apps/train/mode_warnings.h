// What is said of a mode's compressor, as the runs of --mode sync say it of theirs.
#pragma once

#include <string>
#include <vector>

#include "apps/train/train_options.h"
#include "gradwire/status.h"
#include "trainer/parameters.h"

namespace gradwire {

// Of the modes whose messages are blocks; fedavg has an aggregator, which says it itself. Errors as
// of the run.
Result<std::vector<std::string>> mode_warnings(const TrainOptions& options,
                                               const ParameterTable& table);

}  // namespace gradwire
