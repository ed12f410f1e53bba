// What the environment asks of the MPI shim, and the calls that it knows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "adapters/links.h"
#include "gradwire/config.h"
#include "gradwire/status.h"

namespace gradwire::mpi {

enum class Call : std::uint8_t {
  kAllreduce,
  kBcast,
  kReduce,
  kAllgather,
  kAllgatherv,
  kReduceScatter,
  kReduceScatterBlock,
  kAlltoall,
  kAlltoallv,
  kGather,
  kGatherv,
  kScatter,
  kScatterv,
  kScan,
  kExscan,
  kBarrier,
  kIallreduce,
  kIreduce,
  kIbcast,
  kIallgather,
  kIbarrier,
};
inline constexpr std::size_t kCalls = 21;

// "MPI_Allreduce", ...
const char* name_of(Call call);

// A set of calls: bit i is the i-th.
using CallSet = std::uint32_t;
constexpr CallSet set_of(Call call) { return CallSet{1} << static_cast<unsigned>(call); }
inline constexpr CallSet kAllCalls = (CallSet{1} << kCalls) - 1;

// Trivially copyable: rank 0's are sent to the others of a communicator.
struct Settings {
  enum class Transport : std::uint8_t { kAuto, kShm, kUcx, kTcp } transport = Transport::kAuto;
  bool verbose = false;
  CallSet calls = kAllCalls;
  // Of communicators whose messages go over a network.
  LinksFrom links = LinksFrom::kCache;
  // MPI knows no deadlines, and a rank may compute for hours before it comes: none unless asked.
  double deadline_seconds = 1e9;
};

// nullopt when unset or empty.
std::optional<std::string> environment(const std::string& name);

// GRADWIRE_MPI_TRANSPORT, GRADWIRE_MPI_OPS, GRADWIRE_MPI_VERBOSE, GRADWIRE_DEADLINE,
// GRADWIRE_LINKS.
// kInvalidArgument names the variable, the value seen and the value wanted.
Result<Settings> read_settings(const EnvLookup& env);

// What each rank goes by itself.
struct Supervision {
  std::string record_folder;  // GRADWIRE_MPI_RECORD; "": nothing is recorded
  // GRADWIRE_MPI_RANKS, which `gradwire mpi` sets: as many as the launcher says. 0: nobody says.
  int launched_ranks = 0;
};
Result<Supervision> read_supervision(const EnvLookup& env);

}  // namespace gradwire::mpi
