#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/bench/bench.h"
#include "apps/command.h"
#include "apps/compare/compare.h"
#include "apps/completion/completion.h"
#include "apps/doctor/doctor.h"
#include "apps/fetch/data_fetch.h"
#include "apps/flags.h"
#include "apps/generate/generate.h"
#include "apps/inspect/inspect.h"
#include "apps/machine.h"
#include "apps/mpi/mpi.h"
#include "apps/plan/plan.h"
#include "apps/profile/profile.h"
#include "apps/report/report.h"
#include "apps/run/run.h"
#include "apps/sim/sim.h"
#include "apps/sweep/sweep.h"
#include "apps/train/train.h"
#include "base/nearest.h"
#include "gradwire/version.h"

namespace gradwire {
namespace {

Result<int> version_command(const std::vector<std::string>& args) {
  bool json = false;
  Flags flags("version", "Prints the version of gradwire.");
  flags.toggle("json", json, "one JSON object: version, commit, compiler, UCX");
  flags.example("gradwire version");
  GW_ASSIGN(const Flags::Outcome outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  if (!json) {
    std::printf("gradwire %s\n", GRADWIRE_VERSION);
    return 0;
  }
  const Machine here = machine();
  const nlohmann::ordered_json facts{{"gradwire", here.gradwire},
                                     {"commit", here.commit},
                                     {"compiler", here.compiler},
                                     {"ucx", here.ucx}};
  std::printf("%s\n", facts.dump().c_str());
  return 0;
}

constexpr std::array kCommands{
    Command{"bench", "benchmarks of collectives and compressors", bench_command, bench_group},
    Command{"compare", "the same training under several compressors, side by side", compare_main},
    Command{"completion", "completion scripts for bash and zsh", completion_command},
    Command{"data", "downloads of data sets", data_command, data_group},
    Command{"doctor", "diagnosis of this machine and job", doctor_command},
    Command{"generate", "text from a trained language model", generate_command},
    Command{"inspect", "compressors, models, data sets, schedules, payloads, failures",
            inspect_command, inspect_group},
    Command{"mpi", "an MPI program with its collectives on gradwire", mpi_command},
    Command{"plan", "memory and communication of a training run, by arithmetic", plan_command,
            plan_group, false, true},
    Command{"profile", "times of layers, compressors and links on this machine", profile_command},
    Command{"record", "a recording of the collectives an MPI program calls", record_command},
    Command{"report", "tables and charts of a finished sweep or comparison", report_command},
    Command{"run", "a job of several ranks on this machine", run_command},
    Command{"sim", "collective algorithms on a modelled network", sim_command, sim_group},
    Command{"sweep", "a study: all combinations of its choices, resumable", sweep_command},
    Command{"train", "one training run", train_command},
    Command{"version", "the version of gradwire", version_command},
};

constexpr const char* kExitStatus =
    "Exit status:\n"
    "  0        success\n"
    "  1        error; also wrong results (bench), failed runs (sweep, compare),\n"
    "           missed expectations (compare, inspect nmse)\n"
    "  124      run: the job was still running after --timeout\n"
    "  126      run: the program cannot be executed\n"
    "  127      run: the program was not found\n"
    "  128 + N  ended by signal N (run, train)\n"
    "  other    run: of the first rank that failed; mpi, record: of the program\n";

void print_commands(std::span<const Command> list, std::FILE* out) {
  for (const Command& command : list) {
    std::fprintf(out, "  %-15s %.*s\n", std::string(command.name).c_str(),
                 static_cast<int>(command.help.size()), command.help.data());
  }
}

void print_help(std::FILE* out) {
  std::fprintf(out, "usage: gradwire COMMAND [flags]\n\n");
  std::fprintf(out, "Compressed gradient communication for data-parallel training.\n\nCommands:\n");
  print_commands(commands(), out);
  std::fprintf(out, "\ngradwire COMMAND --help lists a command's flags.\n\n%s", kExitStatus);
  std::fprintf(out, "\nExample:\n  gradwire train --steps 20\n");
}

std::vector<std::string> names_of(std::span<const Command> list) {
  std::vector<std::string> names;
  for (const Command& command : list) names.emplace_back(command.name);
  return names;
}

Result<int> run_one(const Command& command, const std::vector<std::string>& words) {
  return command.run({words.begin() + (command.takes_name ? 0 : 1), words.end()});
}

}  // namespace

std::span<const Command> commands() { return kCommands; }

Result<int> run_group(const CommandGroup& group, const std::vector<std::string>& args) {
  const std::string name(group.name);
  if (args.empty()) {
    return Status(Code::kInvalidArgument, name + ": " + std::string(group.word) +
                                              " is missing (expected one of " +
                                              list_text(names_of(group.commands)) + ")");
  }
  if (args[0] == "--help" || args[0] == "-h") {
    std::printf("usage: gradwire %s %s [flags]\n\n%s\n\nCommands:\n", name.c_str(),
                std::string(group.word).c_str(), wrapped(group.purpose, 0).c_str());
    print_commands(group.commands, stdout);
    std::printf("\ngradwire %s %s --help lists its flags.\n\nExample:\n  %s\n", name.c_str(),
                std::string(group.word).c_str(), std::string(group.example).c_str());
    return 0;
  }
  for (const Command& command : group.commands) {
    if (command.name == args[0]) return run_one(command, args);
  }
  const std::vector<std::string> known = names_of(group.commands);
  std::string word(group.word);
  std::ranges::transform(word, word.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return Status(Code::kInvalidArgument, name + ": unknown " + word + " '" + args[0] + "'" +
                                            did_you_mean(args[0], known) + " (expected one of " +
                                            list_text(known) + ")");
}

Result<int> run_program(const std::vector<std::string>& words) {
  const std::vector<std::string> known = names_of(commands());
  if (words.empty()) {
    print_help(stderr);
    return Status(Code::kInvalidArgument,
                  "COMMAND is missing (expected one of " + list_text(known) + ")");
  }
  const bool help = words[0] == "--help" || words[0] == "-h" || words[0] == "help";
  if (help && words.size() == 1) {
    print_help(stdout);
    return 0;
  }
  if (help) {  // gradwire help inspect data
    std::vector<std::string> of(words.begin() + 1, words.end());
    of.emplace_back("--help");
    return run_program(of);
  }
  const std::string name = words[0] == "--version" ? "version" : words[0];
  for (const Command& command : commands()) {
    if (command.name == name) return run_one(command, words);
  }
  return Status(Code::kInvalidArgument, "unknown command '" + name + "'" +
                                            did_you_mean(name, known) + " (expected one of " +
                                            list_text(known) + ")");
}

}  // namespace gradwire
