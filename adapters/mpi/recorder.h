// What a program asks of MPI's collectives, added up.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "adapters/mpi/settings.h"
#include "gradwire/status.h"

namespace gradwire::mpi {

// Thread-safe.
class Recorder {
 public:
  // Calls that are alike.
  struct Kind {
    Call call;
    std::int64_t bytes;  // of this rank's data; of all rows where a call has rows for all
    int ranks;           // of the communicator
    bool carried;        // by gradwire; else by MPI
    auto operator<=>(const Kind&) const = default;
  };

  // One call, from its beginning until it returned (of a call that only starts an operation: that
  // alone).
  void add(const Kind& kind, std::chrono::steady_clock::duration time);

  // FOLDER/rank-RANK.jsonl, one line for each kind in the order of names and sizes:
  // {"operation":"MPI_Allreduce","bytes":4096,"ranks":4,"carried":true,"count":12,
  //  "seconds":0.0031,"least_us":210.5,"most_us":800.1}
  // The folder is made if there is none. kInvalidArgument with the system's reason.
  Status write(const std::string& folder, int rank) const;

 private:
  struct Tally {
    std::uint64_t count = 0;
    double seconds = 0;
    double least = 0;
    double most = 0;
  };
  mutable std::mutex mutex_;
  std::map<Kind, Tally> kinds_;
};

}  // namespace gradwire::mpi
