#include "apps/mpi/mpi.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "apps/environment.h"
#include "apps/flags.h"
#include "base/text.h"

namespace gradwire {
namespace {

namespace fs = std::filesystem;

Status refuse(const std::string& why) { return {Code::kInvalidArgument, "mpi: " + why}; }

// What people call it, and how its programs are started.
std::string title(const std::string& mpi) { return mpi == "openmpi" ? "Open MPI" : "MPICH"; }

// Whose ranks the launcher can start; "" where that is not known. An error where it can start those
// of no MPI.
Result<std::string> launcher_mpi(const LaunchInfo& launch, const EnvLookup& env) {
  if (launch.size == 1) return std::string();
  if (launch.source == "Open MPI") return std::string("openmpi");
  const bool slurm = env("SLURM_STEP_ID") && !env("MPI_LOCALRANKID");
  // srun --mpi=pmi2, which MPICH speaks and Open MPI where it was built for it.
  if (launch.source == "PMI") return std::string(slurm ? "" : "mpich");
  if (launch.source == "Slurm" && env("PMIX_RANK")) return std::string();
  if (launch.source == "Slurm")
    return refuse("srun started " + std::to_string(launch.size) + " tasks without MPI (" +
                  launch.reason + "; use srun --mpi=pmix for Open MPI, --mpi=pmi2 for MPICH)");
  if (launch.source == "PALS") return std::string();
  return refuse(launch.source + " does not start MPI programs (" + launch.reason +
                "; use mpirun.openmpi, mpirun.mpich or srun --mpi=...)");
}

// The folder of this program holds bin's contents, or is a build's apps/.
Result<std::string> library_of(const std::string& mpi) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return Status(Code::kInternal, "cannot find this program: " + error.message());
  const std::string name = "libgradwire_mpi_" + mpi + ".so";
  std::string tried;
  for (const char* folder : {GW_LIBRARIES_FROM_PROGRAMS, "../adapters/mpi"}) {
    const fs::path path = (self.parent_path() / folder / name).lexically_normal();
    if (fs::exists(path, error)) return path.string();
    tried += (tried.empty() ? "" : ", ") + path.string();
  }
  return refuse("this build has no library for " + title(mpi) + " (looked for " + tried +
                "; build where its headers are installed)");
}

std::string found_in_path(const std::string& program) {
  if (program.find('/') != std::string::npos) return program;
  std::string rest = environment("PATH").value_or("/bin:/usr/bin");
  while (!rest.empty()) {
    const std::string folder = rest.substr(0, rest.find(':'));
    const std::string path = folder + "/" + program;
    if (::access(path.c_str(), X_OK) == 0) return path;
    rest = rest.size() > folder.size() ? rest.substr(folder.size() + 1) : "";
  }
  return program;
}

struct Request {
  std::string name;  // of the command
  std::string mpi = "auto";
  std::string calls = {};      // GRADWIRE_MPI_OPS, where not empty
  std::string transport = {};  // GRADWIRE_MPI_TRANSPORT
  std::string record = {};     // GRADWIRE_MPI_RECORD
  bool carry = true;           // unless GRADWIRE_MPI_OPS says which
  bool verbose = false;
  std::vector<std::string> program = {};
};

void set(const char* variable, const std::string& value) {
  if (!value.empty()) ::setenv(variable, value.c_str(), 1);
}

// Returns only with an error.
Status become(const Request& request) {
  GW_ASSIGN(const LaunchInfo launch, discover_launch(environment));
  const std::string path = found_in_path(request.program[0]);
  auto linked = linked_mpi(path);
  if (!linked.has_value()) return linked.error().with_context(request.name + ": " + path);
  auto mpi = choose_mpi(linked.value(), launch, environment, request.mpi);
  if (!mpi.has_value()) return mpi.error().with_context(path);
  GW_ASSIGN(const std::string library, library_of(mpi.value()));
  const auto preloaded = environment("LD_PRELOAD");
  set("LD_PRELOAD", preloaded ? library + ":" + *preloaded : library);
  const bool none = !request.carry && !environment("GRADWIRE_MPI_OPS");
  set("GRADWIRE_MPI_OPS", none ? "none" : request.calls);
  set("GRADWIRE_MPI_TRANSPORT", request.transport);
  set("GRADWIRE_MPI_RECORD", request.record);
  if (request.verbose) set("GRADWIRE_MPI_VERBOSE", "1");
  if (launch.size > 1) set("GRADWIRE_MPI_RANKS", std::to_string(launch.size));
  std::vector<char*> words;
  for (const std::string& word : request.program) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::fflush(nullptr);
  ::execv(path.c_str(), words.data());
  return Status(Code::kInvalidArgument, request.name + ": cannot execute '" + request.program[0] +
                                            "' (" + std::strerror(errno) + ")");
}

Result<int> run_flags(Flags& flags, Request& request, const std::vector<std::string>& args) {
  const auto dashes = std::find(args.begin(), args.end(), "--");
  GW_ASSIGN(const Flags::Outcome outcome, flags.parse({args.begin(), dashes}));
  if (outcome == Flags::Outcome::kHelp) return 0;
  if (dashes == args.end() || dashes + 1 == args.end())
    return Status(Code::kInvalidArgument, request.name +
                                              ": PROGRAM is missing (expected gradwire " +
                                              request.name + " ... -- PROGRAM ARGS...)");
  if (request.name == "record" && request.record.empty())
    return Status(Code::kInvalidArgument, "record: --out is missing (expected a folder)");
  request.program.assign(dashes + 1, args.end());
  return become(request);
}

void add_mpi_flag(Flags& flags, Request& request) {
  flags.choice(
      "mpi", request.mpi, {"auto", "openmpi", "mpich"},
      "MPI of the program; auto: the MPI it links, else the launcher's (scripts link none)");
}

}  // namespace

Result<std::string> choose_mpi(const LinkedMpi& linked, const LaunchInfo& launch,
                               const EnvLookup& env, const std::string& wanted) {
  GW_ASSIGN(const std::string launcher, launcher_mpi(launch, env));
  const std::string program = wanted != "auto" ? wanted : linked.name;
  if (wanted != "auto" && !linked.name.empty() && linked.name != wanted)
    return refuse("the program links " + title(linked.name) + " (got " + linked.library +
                  ", expected --mpi " + linked.name + " or auto)");
  if (!program.empty() && !launcher.empty() && program != launcher) {
    const std::string why = linked.library.empty() ? "--mpi " + wanted : linked.library;
    return refuse("a program of " + title(program) + " (" + why +
                  ") was started by the launcher of " + title(launcher) + " (" + launch.reason +
                  "), under which each process is a job of its own; use mpirun." + program);
  }
  if (!program.empty()) return program;
  if (!launcher.empty()) return launcher;
  if (env("PMIX_RANK") && launch.size > 1) return std::string("openmpi");
  if (launch.source == "PMI") return std::string("mpich");
  return refuse(
      "neither the program's libraries nor a launcher tell which MPI it uses; use --mpi openmpi or "
      "--mpi mpich");
}

Result<int> mpi_command(const std::vector<std::string>& args) {
  Request request{.name = "mpi"};
  Flags flags(
      "mpi",
      "Runs an MPI program with its collectives on gradwire, by a library loaded for the MPI that "
      "the program links. Refuses a launcher of another MPI. docs/mpi.md lists the calls.");
  flags.trailer("-- PROGRAM [ARG ...]");
  flags.text("ops", request.calls,
             "calls to carry, separated by commas (allreduce,bcast), all or none",
             "GRADWIRE_MPI_OPS, else all", "CALLS");
  flags.text("transport", request.transport, "transport: auto, shm, ucx or tcp",
             "GRADWIRE_MPI_TRANSPORT, else auto", "NAME");
  flags.toggle("verbose", request.verbose, "report of the carried calls by rank 0 when MPI ends");
  add_mpi_flag(flags, request);
  flags.example("mpirun -n 4 gradwire mpi -- ./program");
  return run_flags(flags, request, args);
}

Result<int> record_command(const std::vector<std::string>& args) {
  Request request{.name = "record", .carry = false};
  Flags flags("record",
              "Records the collectives an MPI program calls: DIR/rank-R.jsonl has a line for each "
              "operation and size with the number of calls and their time. The calls go to the "
              "program's own MPI.");
  flags.trailer("-- PROGRAM [ARG ...]");
  flags.folder("out", request.record, "output folder", "required");
  flags.toggle("carry", request.carry, "calls carried by gradwire, as under gradwire mpi");
  add_mpi_flag(flags, request);
  flags.example("mpirun -n 4 gradwire record --out calls -- ./program");
  return run_flags(flags, request, args);
}

}  // namespace gradwire
