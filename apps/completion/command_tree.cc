#include <algorithm>

#include "apps/command.h"
#include "apps/completion/completion.h"
#include "apps/flags.h"
#include "gradwire/registry.h"

namespace gradwire {
namespace {

CommandFacts facts_of(const Command& command) {
  CommandFacts facts;
  const Flags::Probe probe([&facts](const CommandFacts& found) { facts = found; });
  std::vector<std::string> words;
  if (command.takes_name) words.emplace_back(command.name);
  (void)command.run(words);
  return facts;
}

void add_all(std::span<const Command> commands, const std::string& path,
             std::vector<CommandEntry>& tree) {
  const std::size_t own = tree.size();
  tree.push_back({.path = path});
  for (const Command& command : commands) {
    tree[own].parts.emplace_back(command.name, command.help);
    const std::string below = path + (path.empty() ? "" : " ") + std::string(command.name);
    if (command.group != nullptr) {
      const std::size_t group = tree.size();
      add_all(command.group().commands, below, tree);
      if (command.has_flags) tree[group].facts = facts_of(command);
    } else {
      tree.push_back({.path = below, .facts = facts_of(command)});
    }
  }
}

const CommandFacts* facts_at(const std::vector<CommandEntry>& tree, const std::string& path) {
  const auto found = std::ranges::find(tree, path, &CommandEntry::path);
  return found == tree.end() ? nullptr : &found->facts;
}

// `compare` takes the flags of `train` as text and hands them on.
void fill_in_from_train(std::vector<CommandEntry>& tree) {
  const CommandFacts* train = facts_at(tree, "train");
  const auto compare = std::ranges::find(tree, "compare", &CommandEntry::path);
  if (train == nullptr || compare == tree.end()) return;
  for (FlagFacts& flag : compare->facts.flags) {
    const auto known = std::ranges::find(train->flags, flag.name, &FlagFacts::name);
    if (known == train->flags.end() || flag.placeholder != "VALUE") continue;
    flag.values = known->values;
    flag.placeholder = known->placeholder;
    flag.help = known->help;
  }
}

}  // namespace

std::vector<CommandEntry> command_tree() {
  std::vector<CommandEntry> tree;
  add_all(commands(), "", tree);
  fill_in_from_train(tree);
  std::vector<std::string> methods;
  const Registry registry = Registry::builtin();
  for (const Registry::Method& method : registry.methods()) {
    methods.push_back(method.name);
  }
  for (CommandEntry& entry : tree) {
    for (FlagFacts& flag : entry.facts.flags) {
      if (flag.placeholder == "SPEC") flag.values = methods;
    }
  }
  return tree;
}

}  // namespace gradwire
