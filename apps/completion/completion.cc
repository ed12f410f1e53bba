#include "apps/completion/completion.h"

#include <cstdio>

#include "apps/flags.h"
#include "base/nearest.h"

namespace gradwire {

Result<int> completion_command(const std::vector<std::string>& args) {
  std::string shell;
  Flags flags("completion",
              "Prints a completion script for a shell: commands, flags and the values of flags. "
              "An installation has both where the shells look for them; a build is used by\n"
              "  source <(gradwire completion bash)");
  flags.positional("SHELL", shell, "the shell", false, {"bash", "zsh"});
  flags.example("gradwire completion bash");
  GW_ASSIGN(const Flags::Outcome outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  if (shell != "bash" && shell != "zsh") {
    return Status(Code::kInvalidArgument, "completion: unknown SHELL '" + shell + "'" +
                                              did_you_mean(shell, {"bash", "zsh"}) +
                                              " (expected bash or zsh)");
  }
  const std::vector<CommandEntry> tree = command_tree();
  std::fputs((shell == "bash" ? bash_completion(tree) : zsh_completion(tree)).c_str(), stdout);
  return 0;
}

}  // namespace gradwire
