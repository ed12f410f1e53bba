// What `gradwire inspect` can show.
#pragma once

#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

// args: what stands after `inspect`. All print to standard output and return the exit status.
Result<int> inspect_command(const std::vector<std::string>& args);

// `inspect compressors [--json]`: every method of the registry, its keys and its claims.
Result<int> inspect_compressors(const std::vector<std::string>& args);

// `inspect nmse [--recipe built-in|FILE]`: quantisation errors beside expected ones; 1 on a miss.
Result<int> inspect_nmse(const std::vector<std::string>& args);

// `inspect payload FILE`: decodes a payload file (payload_file.h); hostile ones give errors.
Result<int> inspect_payload(const std::vector<std::string>& args);
// `inspect encode SPEC --out FILE`: makes one from random elements.
Result<int> inspect_encode(const std::vector<std::string>& args);
// `inspect schedule ALGORITHM RANKS`: every rank's rounds and the checker's verdict.
Result<int> inspect_schedule(const std::vector<std::string>& args);
// `inspect flight DIR`: merges the records of a failed job's ranks and names the culprit.
Result<int> inspect_flight(const std::vector<std::string>& args);
// `inspect data SET`: counts, shapes and pixel figures.
Result<int> inspect_data(const std::vector<std::string>& args);

}  // namespace gradwire
