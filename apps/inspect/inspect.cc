#include "apps/inspect/inspect.h"

#include <array>
#include <cstdio>

#include "apps/catalogue.h"
#include "apps/flags.h"

namespace gradwire {
namespace {

constexpr std::array kTopics{
    Command{"compressors", "compressors: keys, defaults and properties", inspect_compressors},
    Command{"models", "models of gradwire train", inspect_models},
    Command{"data", "data sets of gradwire train, or the figures of one", inspect_data},
    Command{"nmse", "measured compression errors beside the expected ones", inspect_nmse},
    Command{"schedule", "messages of a collective algorithm, checked", inspect_schedule},
    Command{"flight", "cause of a job's failure, from its flight records", inspect_flight},
    Command{"payload", "contents of a payload file", inspect_payload},
    Command{"encode", "payload file made from random elements", inspect_encode},
};

}  // namespace

const CommandGroup& inspect_group() {
  static const CommandGroup group{
      .name = "inspect",
      .word = "TOPIC",
      .purpose =
          "Shows what gradwire knows or has written. With --json every topic prints JSON "
          "lines.",
      .commands = kTopics,
      .example = "gradwire inspect compressors --json"};
  return group;
}

Result<int> inspect_command(const std::vector<std::string>& args) {
  return run_group(inspect_group(), args);
}

Result<int> inspect_models(const std::vector<std::string>& args) {
  bool json = false;
  Flags flags("inspect models", "Lists the models that gradwire train takes.");
  flags.toggle("json", json, "one JSON line per model");
  flags.example("gradwire inspect models");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  std::printf("%s", (json ? model_json_lines() : model_list()).c_str());
  return 0;
}

}  // namespace gradwire
