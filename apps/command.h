// The commands of the program. Each lives in a file of its own and is named in commands.cc's table,
// nowhere else.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

// args: what stands after the command's name. Returns the exit status; an error is printed by
// main() as "gradwire: error: MESSAGE" and ends the program with status 1.
using CommandMain = Result<int> (*)(const std::vector<std::string>& args);

struct CommandGroup;

struct Command {
  std::string_view name;
  std::string_view help;  // a noun phrase for the list of commands
  CommandMain run;
  const CommandGroup& (*group)() = nullptr;  // the commands below it
  bool takes_name = false;                   // run() is given its own name as the first word
  bool has_flags = false;                    // of a command that a group is below: flags of its own
};

// `gradwire bench`, whose commands are benchmarks.
struct CommandGroup {
  std::string_view name;     // "bench"
  std::string_view word;     // "BENCHMARK": what stands for one in the usage line
  std::string_view purpose;  // a sentence or two
  std::span<const Command> commands;
  std::string_view example;
};

// Runs the command that args[0] names; --help prints the group's.
Result<int> run_group(const CommandGroup& group, const std::vector<std::string>& args);

// All commands of `gradwire`.
std::span<const Command> commands();

// `gradwire WORDS...`, or the list of commands; errors as of CommandMain.
Result<int> run_program(const std::vector<std::string>& words);

}  // namespace gradwire
