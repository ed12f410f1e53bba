// The program gradwire: finds the subcommand and prints its error, if any.
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "apps/bench/bench.h"
#include "apps/command.h"
#include "apps/compare/compare.h"
#include "apps/doctor/doctor.h"
#include "apps/fetch/data_fetch.h"
#include "apps/inspect/inspect.h"
#include "apps/mpi/mpi.h"
#include "apps/plan/plan.h"
#include "apps/report/report.h"
#include "apps/run/run.h"
#include "apps/sim/sim.h"
#include "apps/sweep/sweep.h"
#include "apps/train/train.h"
#include "gradwire/version.h"

namespace gradwire {
namespace {

struct Command {
  std::string_view name;
  std::string_view help;
  CommandMain run;
};

Result<int> version(const std::vector<std::string>& /*args*/) {
  std::printf("gradwire %s\n", GRADWIRE_VERSION);
  return 0;
}

constexpr std::array kCommands{
    Command{"bench", "measure collectives and codecs", bench_command},
    Command{"compare", "train under several compressors, side by side", compare_main},
    Command{"data", "fetch data sets", data_command},
    Command{"doctor", "what this machine and this job offer, what was chosen, and why",
            doctor_command},
    Command{"inspect", "show compressors, schedules, data sets and payloads", inspect_command},
    Command{"mpi", "run an MPI program with its collectives on gradwire", mpi_command},
    Command{"plan", "what training will hold in memory and send", plan_command},
    Command{"record", "record what an MPI program asks of its collectives", record_command},
    Command{"report", "show what a sweep or comparison came to", report_command},
    Command{"run", "start the ranks of a job on this machine", run_command},
    Command{"sim", "what every algorithm takes on a modelled network", sim_command},
    Command{"sweep", "train a whole study: the cross product of its choices", sweep_command},
    Command{"train", "one training run", train_command},
    Command{"version", "print the version", version},
};

void print_help(std::FILE* out) {
  std::fprintf(out, "gradwire: gradients of a training job, compressed and sent the best way\n\n");
  std::fprintf(out, "usage: gradwire COMMAND [flags]; gradwire COMMAND --help tells more\n\n");
  for (const Command& command : kCommands) {
    std::fprintf(out, "  %-9s %s\n", std::string(command.name).c_str(),
                 std::string(command.help).c_str());
  }
}

int fail(std::string_view message) {
  std::fflush(stdout);
  std::fprintf(stderr, "gradwire: error: %.*s\n", static_cast<int>(message.size()), message.data());
  return 1;
}

// Sizes come from flags and files, so too large ones are the user's to hear of, in whatever thread
// they meet the end of memory.
[[noreturn]] void explain_and_end() {
  try {
    if (std::current_exception() != nullptr) throw;
  } catch (const std::bad_alloc&) {
    (void)fail("out of memory (an allocation failed; smaller sizes wanted)");
    std::_Exit(1);
  } catch (const std::system_error& refused) {  // mostly of threads, whose stacks take memory
    (void)fail(std::string("the system refuses a thread (") + refused.what() +
               "; fewer --threads or ranks, or a larger limit of memory or processes, wanted)");
    std::_Exit(1);
  } catch (const std::exception& bug) {
    (void)fail(bug.what());
  }
  std::abort();
}

std::string command_names() {
  std::string names;
  for (const Command& command : kCommands) {
    names += (names.empty() ? "" : ", ") + std::string(command.name);
  }
  return names;
}

int dispatch(const std::vector<std::string>& words) {
  if (words.empty()) {
    print_help(stderr);
    return fail("no command (commands: " + command_names() + ")");
  }
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    print_help(stdout);
    return 0;
  }
  const std::string name = words[0] == "--version" ? "version" : words[0];
  for (const Command& command : kCommands) {
    if (command.name != name) continue;
    const auto outcome = command.run({words.begin() + 1, words.end()});
    return outcome.has_value() ? outcome.value() : fail(outcome.error().message());
  }
  return fail("unknown command '" + name + "' (commands: " + command_names() + ")");
}

// What was printed and could not be written makes the program fail: a full disk must not look like
// an empty result. Why an earlier write failed is known by trying another one.
int check_output(int status) {
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return status;
  const bool goes_on = flushed && ::write(STDOUT_FILENO, "\n", 1) == 1;
  const std::string reason = goes_on ? "earlier, for a while" : std::strerror(errno);
  const int failed = fail("cannot write to standard output (" + reason + ")");
  return status == 0 ? failed : status;
}

}  // namespace
}  // namespace gradwire

int main(int argc, char** argv) {
  std::set_terminate(gradwire::explain_and_end);
  return gradwire::check_output(gradwire::dispatch({argv + 1, argv + argc}));
}
