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
    return refuse("srun has started " + std::to_string(launch.size) +
                  " tasks of which MPI knows nothing (" + launch.reason +
                  "; srun --mpi=pmix for Open MPI or --mpi=pmi2 for MPICH wanted)");
  if (launch.source == "PALS") return std::string();
  return refuse(launch.source + " starts no MPI programs (" + launch.reason +
                "; mpirun.openmpi, mpirun.mpich or srun --mpi=... wanted)");
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
  return refuse("this build has no library for " + title(mpi) + " (" + tried +
                " tried; a build where its headers are wanted)");
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
                                            "' (" + std::strerror(errno) + "; wanted a program)");
}

Result<int> run_flags(Flags& flags, Request& request, const std::vector<std::string>& args) {
  const auto dashes = std::find(args.begin(), args.end(), "--");
  GW_ASSIGN(const Flags::Outcome outcome, flags.parse({args.begin(), dashes}));
  if (outcome == Flags::Outcome::kHelp) return 0;
  if (dashes == args.end() || dashes + 1 == args.end())
    return Status(Code::kInvalidArgument, request.name + ": no program (wanted: gradwire " +
                                              request.name + " ... -- PROGRAM ARGS...)");
  if (request.name == "record" && request.record.empty())
    return Status(Code::kInvalidArgument, "record: --out is not given (wanted: a folder)");
  request.program.assign(dashes + 1, args.end());
  return become(request);
}

void add_mpi_flag(Flags& flags, Request& request) {
  flags.choice(
      "mpi", request.mpi, {"auto", "openmpi", "mpich"},
      "the MPI of a program that does not tell, a script above all; auto: what the program "
      "links, else the launcher's");
}

}  // namespace

Result<std::string> choose_mpi(const LinkedMpi& linked, const LaunchInfo& launch,
                               const EnvLookup& env, const std::string& wanted) {
  GW_ASSIGN(const std::string launcher, launcher_mpi(launch, env));
  const std::string program = wanted != "auto" ? wanted : linked.name;
  if (wanted != "auto" && !linked.name.empty() && linked.name != wanted)
    return refuse("the program links " + title(linked.name) + " (" + linked.library +
                  " seen; --mpi " + linked.name + " or auto wanted)");
  if (!program.empty() && !launcher.empty() && program != launcher) {
    const std::string why = linked.library.empty() ? "--mpi " + wanted : linked.library;
    return refuse("a program of " + title(program) + " (" + why + ") was started by " +
                  title(launcher) + "'s launcher (" + launch.reason +
                  "), under which each process is a job of its own (mpirun." + program +
                  " wanted)");
  }
  if (!program.empty()) return program;
  if (!launcher.empty()) return launcher;
  if (env("PMIX_RANK") && launch.size > 1) return std::string("openmpi");
  if (launch.source == "PMI") return std::string("mpich");
  return refuse(
      "the program links no MPI that can be seen, and no launcher says which it is (--mpi openmpi "
      "or --mpi mpich wanted)");
}

Result<int> mpi_command(const std::vector<std::string>& args) {
  Request request{.name = "mpi"};
  Flags flags(
      "mpi",
      "Runs an MPI program with its collectives on gradwire: mpirun -n 4 gradwire mpi -- "
      "PROGRAM ARGS...\nLooks which MPI the program links, loads gradwire's library for it, "
      "and refuses a launcher of another MPI. docs/mpi.md says what is carried.");
  flags.text("ops", request.calls,
             "which calls gradwire carries, with commas between: "
             "allreduce,bcast; all or none",
             "GRADWIRE_MPI_OPS, or all");
  flags.text("transport", request.transport, "auto, shm, ucx or tcp",
             "GRADWIRE_MPI_TRANSPORT, or auto");
  flags.toggle("verbose", request.verbose, "rank 0 reports what was carried when MPI ends");
  add_mpi_flag(flags, request);
  return run_flags(flags, request, args);
}

Result<int> record_command(const std::vector<std::string>& args) {
  Request request{.name = "record", .carry = false};
  Flags flags("record",
              "Records what an MPI program asks of MPI's collectives: mpirun -n 4 gradwire record "
              "--out DIR -- PROGRAM ARGS...\nDIR/rank-R.jsonl has a line for each operation and "
              "size: how often, and the time it took. The program's own MPI does the work.");
  flags.text("out", request.record, "folder for the files", "required");
  flags.toggle("carry", request.carry, "gradwire does the work, as under gradwire mpi");
  add_mpi_flag(flags, request);
  return run_flags(flags, request, args);
}

}  // namespace gradwire
