#include "apps/variables.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "apps/environment.h"
#include "base/nearest.h"

namespace gradwire {
namespace {

constexpr std::string_view kPrefix = "GRADWIRE_";

constexpr std::array kVariables{
    Variable{"GRADWIRE_ALLOW_LONE_SURVIVOR", "1: a rank left alone may continue"},
    Variable{"GRADWIRE_BLOCKING", "1: PyTorch collectives return when they are complete"},
    Variable{"GRADWIRE_CACHE", "folder for the compiled PyTorch extension"},
    Variable{"GRADWIRE_CHECKSUM", "1: every message carries a checksum"},
    Variable{"GRADWIRE_CHROMIUM", "browser for report --png"},
    Variable{"GRADWIRE_DATA", "folder of data sets, where --data-dir is not given"},
    Variable{"GRADWIRE_DEADLINE", "seconds one operation may take (default: 15)"},
    Variable{"GRADWIRE_FLIGHT", "folder for flight records"},
    Variable{"GRADWIRE_IFNAME", "network interfaces, with commas (default: the first usable)"},
    Variable{"GRADWIRE_JOB", "name of the job at the rendezvous"},
    Variable{"GRADWIRE_JOIN_PIPE", "set by gradwire run"},
    Variable{"GRADWIRE_LAB", "path of bench/lab, for sweep and compare --lab"},
    Variable{"GRADWIRE_LAUNCHER", "set by gradwire run: its process id"},
    Variable{"GRADWIRE_LAUNCHER_STORE", "set by gradwire run: folder for the fencing token"},
    Variable{"GRADWIRE_LIBRARY", "file of libgradwire for the Python package"},
    Variable{"GRADWIRE_LINKS", "source of link parameters: default, cached, measured"},
    Variable{"GRADWIRE_LOCAL_RANK", "rank of this process on its host"},
    Variable{"GRADWIRE_LOG", "log level: trace, debug, info, warn (default), error, off"},
    Variable{"GRADWIRE_MPI_OPS", "MPI calls that gradwire carries"},
    Variable{"GRADWIRE_MPI_RANKS", "set by gradwire mpi: number of ranks"},
    Variable{"GRADWIRE_MPI_RECORD", "folder for recordings of MPI calls"},
    Variable{"GRADWIRE_MPI_TRANSPORT", "transport for MPI programs"},
    Variable{"GRADWIRE_MPI_VERBOSE", "1: rank 0 reports the calls that were carried"},
    Variable{"GRADWIRE_NODE", "name of this rank's node (default: its host)"},
    Variable{"GRADWIRE_RANK", "rank of this process"},
    Variable{"GRADWIRE_RENDEZVOUS", "HOST:PORT of rank 0, or file://DIR"},
    Variable{"GRADWIRE_SECRET", "secret of the rendezvous (default: none)"},
    Variable{"GRADWIRE_SECRET_FILE", "file with the secret of the rendezvous"},
    Variable{"GRADWIRE_TCP_CONGESTION",
             "congestion control of TCP connections (default: the kernel's)"},
    Variable{"GRADWIRE_TCP_RATE", "bytes per second of a slow link: 12.5e6 (default: no limit)"},
    Variable{"GRADWIRE_TRANSPORT", "transport: auto, shm, ucx, tcp, nccl, nccl:N"},
    Variable{"GRADWIRE_WORLD_SIZE", "number of ranks of the job"},
};

// Names of the tests' own programs, which read them from the same environment.
bool belongs_to_tests(std::string_view name) {
  return name.starts_with("GRADWIRE_TEST_") || name == "GRADWIRE_PROGRAM" ||
         name == "GRADWIRE_TORCHRUN" || name == "GRADWIRE_FAULT_JOBS";
}

bool is_first_of_its_job() {
  if (environment("GRADWIRE_LAUNCHER")) return false;  // gradwire run has warned
  return std::ranges::all_of(
      std::array{"GRADWIRE_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"},
      [](const char* name) { return environment(name).value_or("0") == "0"; });
}

}  // namespace

std::span<const Variable> known_variables() { return kVariables; }

std::vector<std::string> unknown_variable_lines(const std::vector<std::string>& names) {
  std::vector<std::string> known;  // without what all names share, which makes none of them near
  for (const Variable& variable : kVariables) {
    known.emplace_back(variable.name.substr(kPrefix.size()));
  }
  std::vector<std::string> lines;
  for (const std::string& name : names) {
    if (!name.starts_with(kPrefix) || belongs_to_tests(name)) continue;
    const std::string end = name.substr(kPrefix.size());
    if (std::ranges::find(known, end) != known.end()) continue;
    lines.push_back("unknown environment variable " + name + did_you_mean(end, known, kPrefix));
  }
  return lines;
}

void warn_of_unknown_variables() {
  if (!is_first_of_its_job()) return;
  std::vector<std::string> names;
  for (const auto& [name, value] : environment_with({"GRADWIRE_"})) names.push_back(name);
  for (const std::string& line : unknown_variable_lines(names)) {
    std::fprintf(stderr, "gradwire: warning: %s\n", line.c_str());
  }
}

}  // namespace gradwire
