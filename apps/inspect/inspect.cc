#include "apps/inspect/inspect.h"

#include <array>
#include <cstdio>
#include <string_view>

#include "apps/command.h"

namespace gradwire {
namespace {

struct Topic {
  std::string_view name;
  std::string_view help;
  CommandMain run;
};

constexpr std::array kTopics{
    Topic{"compressors", "methods, their keys and what they claim", inspect_compressors},
    Topic{"nmse", "measured quantisation errors beside the expected ones", inspect_nmse},
    Topic{"schedule", "who sends what when in a collective", inspect_schedule},
    Topic{"flight", "who was to blame when a job failed", inspect_flight},
    Topic{"data", "a data set's counts and figures", inspect_data},
    Topic{"payload", "a payload file, decoded", inspect_payload},
    Topic{"encode", "make a payload file from random elements", inspect_encode},
};

std::string topic_names() {
  std::string names;
  for (const Topic& topic : kTopics) names += (names.empty() ? "" : ", ") + std::string(topic.name);
  return names;
}

}  // namespace

Result<int> inspect_command(const std::vector<std::string>& args) {
  const std::string wanted = args.empty() ? "" : args[0];
  if (wanted == "--help" || wanted == "-h") {
    std::printf("usage: gradwire inspect TOPIC ...; gradwire inspect TOPIC --help tells more\n\n");
    for (const Topic& topic : kTopics) {
      std::printf("  %-12s %s\n", std::string(topic.name).c_str(), std::string(topic.help).c_str());
    }
    return 0;
  }
  for (const Topic& topic : kTopics) {
    if (topic.name == wanted) return topic.run({args.begin() + 1, args.end()});
  }
  return Status(Code::kInvalidArgument, "inspect: unknown topic ('" + wanted + "' seen; one of " +
                                            topic_names() + " wanted)");
}

}  // namespace gradwire
