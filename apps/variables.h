// The environment variables of gradwire: docs/cli.md's table, and the warning about unknown ones.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire {

struct Variable {
  std::string_view name;
  std::string_view meaning;
};

// All that the programs, libraries and packages of gradwire read, by name.
std::span<const Variable> known_variables();

// What to say about variables that begin with GRADWIRE_ and that nothing reads; names with
// GRADWIRE_TEST_ belong to the tests.
std::vector<std::string> unknown_variable_lines(const std::vector<std::string>& names);

// The same on standard error, for this process's environment; of a job's ranks the first alone.
void warn_of_unknown_variables();

}  // namespace gradwire
