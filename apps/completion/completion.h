// `gradwire completion bash|zsh`: a shell's completion of commands, flags and their values.
#pragma once

#include <string>
#include <vector>

#include "apps/help_text.h"
#include "gradwire/status.h"

namespace gradwire {

// args: what stands after `completion`.
Result<int> completion_command(const std::vector<std::string>& args);

// A command as completion sees it: a group of others, one with flags, or both.
struct CommandEntry {
  std::string path;  // "inspect data"; "" is gradwire itself
  std::vector<std::pair<std::string, std::string>> parts = {};  // names and help of those below
  CommandFacts facts = {};
};

// Every command of the program, each before those below it. What they take is asked of the
// commands themselves, by Flags::Probe.
std::vector<CommandEntry> command_tree();

std::string bash_completion(const std::vector<CommandEntry>& tree);
std::string zsh_completion(const std::vector<CommandEntry>& tree);

}  // namespace gradwire
