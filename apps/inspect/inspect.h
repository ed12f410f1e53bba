// What `gradwire inspect` can show.
#pragma once

#include <string>
#include <vector>

#include "apps/command.h"
#include "gradwire/status.h"

namespace gradwire {

// args: what stands after `inspect`. All print to standard output and return the exit status; with
// --json they print one JSON object per line there, and nothing else (docs/cli.md).
Result<int> inspect_command(const std::vector<std::string>& args);
const CommandGroup& inspect_group();

// `inspect compressors`: every method of the registry, its keys and its claims.
Result<int> inspect_compressors(const std::vector<std::string>& args);

// `inspect nmse [--recipe built-in|FILE]`: quantisation errors beside expected ones; 1 on a miss.
Result<int> inspect_nmse(const std::vector<std::string>& args);

// `inspect payload FILE`: decodes a payload file (payload_file.h); hostile ones give errors.
Result<int> inspect_payload(const std::vector<std::string>& args);
// `inspect encode SPEC --out FILE`: makes one from random elements.
Result<int> inspect_encode(const std::vector<std::string>& args);
// `inspect schedule ALGORITHM RANKS`: every rank's rounds and the checker's result.
Result<int> inspect_schedule(const std::vector<std::string>& args);
// `inspect schedule pipeline SCHEDULE RANKS MICRO-BATCHES`: every rank's operations and the
// checker's result. args: what stands after `pipeline`.
Result<int> inspect_pipeline(const std::vector<std::string>& args);
// `inspect flight DIR`: merges the records of a failed job's ranks and names the cause.
Result<int> inspect_flight(const std::vector<std::string>& args);
// `inspect models`: one line each.
Result<int> inspect_models(const std::vector<std::string>& args);
// `inspect data SET`: counts, shapes and pixel figures. Without SET: one line for each set.
Result<int> inspect_data(const std::vector<std::string>& args);

}  // namespace gradwire
