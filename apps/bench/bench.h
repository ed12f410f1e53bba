// `gradwire bench`: measurements as a table for people and JSON rows for programs.
#pragma once

#include <string>
#include <vector>

#include "apps/command.h"
#include "gradwire/status.h"

namespace gradwire {

// args: what stands after `bench`. Returns the exit status.
Result<int> bench_command(const std::vector<std::string>& args);
const CommandGroup& bench_group();

// `bench all_reduce` and the other operations; words[0] is the operation's name.
Result<int> bench_collectives(const std::vector<std::string>& words);

// `bench codecs`: what encoding and decoding cost on one core.
Result<int> bench_codecs(const std::vector<std::string>& args);

// `bench exchange`: what steps of an aggregator and messages cost besides their bytes.
Result<int> bench_exchange(const std::vector<std::string>& args);

// `bench gemm`: what dividing a linear layer's product among ranks costs one of them.
Result<int> bench_gemm(const std::vector<std::string>& args);

}  // namespace gradwire
