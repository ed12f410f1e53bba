// `gradwire bench`: measurements as a table for people and JSON rows for programs.
#pragma once

#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

// args: what stands after `bench`. Returns the exit status.
Result<int> bench_command(const std::vector<std::string>& args);

// `bench codecs`: what encoding and decoding cost on one core.
Result<int> bench_codecs(const std::vector<std::string>& args);

}  // namespace gradwire
