// One run of a plan: the command that a user would type, and what decides its outcome.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/sweep/study.h"

namespace gradwire {

struct RunCommand {
  std::map<std::string, std::string> environment;  // to add
  std::vector<std::string> argv;  // "gradwire" and "bench/lab" stand for those programs
};
RunCommand command_of(const StudyCase& one, std::uint64_t seed);

// The same with no training: finds wrong flags, illegal pairs and missing data. Ranks are threads.
RunCommand check_command_of(const StudyCase& one, std::uint64_t seed);

// As a shell takes it.
std::string shell_text(const std::vector<std::string>& words);
std::string shell_text(const RunCommand& command);

// "4x1gbit" -> 4 hosts, "1gbit". kInvalidArgument says what is wanted.
struct LabLinks {
  int hosts = 0;
  std::string rate;
};
Result<LabLinks> parse_lab(const std::string& text);
// Bits per second, 0 where links are not shaped ("none"). Of a text that parse_lab() takes.
double lab_bits(const std::string& text);

// What decides a run's numbers beside the build: flags, ranks and transport, the variables that
// transports and data read, and the state of the files that it names (path, size, time).
nlohmann::ordered_json spec_of(const StudyCase& one, std::uint64_t seed);

// A folder's name for it: readable, and different for different specs.
std::string run_name(const StudyCase& one, std::uint64_t seed, const nlohmann::ordered_json& spec);

}  // namespace gradwire
