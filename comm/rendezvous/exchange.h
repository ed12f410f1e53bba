// How rank 0 tells all ranks of a launcher's job one line of text, before they can reach each
// other: through the connection that the launcher has given to each of them.
#pragma once

#include <string>
#include <string_view>

#include "comm/rendezvous/socket.h"
#include "gradwire/status.h"

namespace gradwire::rendezvous {

// What rank 0 tells of itself.
struct Notice {
  HostPort place;
  std::string session;  // random: keeps apart jobs of one name, one after another or at once
  std::string secret;   // random; "" where all ranks know one already
};

// notice = "gradwire1;" host ";" port ";" session ";" secret, without blanks.
std::string encode(const Notice& notice);
// kInvalidArgument quotes what is no notice.
Result<Notice> parse_notice(std::string_view text);

// The exchanges are collective over the ranks of the launcher's job, return rank 0's `text` on
// every rank (that of others is not looked at), and end by `deadline`. Texts have no line ends and
// at most 255 bytes, which every process manager takes.

// The PMI-1 wire protocol on `fd`, as Hydra, and Slurm under --mpi=pmi2, give it in PMI_FD. Once in
// a process: the process manager takes its end for the end of the process's use of MPI. Errors name
// PMI_FD.
Result<std::string> exchange_over_pmi(int fd, int rank, std::string_view text, Deadline deadline);

// PMIx, by the library libpmix.so.2, which is loaded when this is called. kUnsupported without it.
Result<std::string> exchange_over_pmix(int rank, std::string_view text, Deadline deadline);

// The key-value store that torchrun's agent serves at `where`, which outlives the ranks: `job`
// names one of their lives, and each call in it is counted.
Result<std::string> exchange_over_torch(const HostPort& where, std::string_view job, int rank,
                                        std::string_view text, Deadline deadline);

// Writes `value` under `key` in that store unless there is a value; what is there then.
Result<std::string> first_over_torch(const HostPort& where, std::string_view key,
                                     std::string_view value, Deadline deadline);

}  // namespace gradwire::rendezvous
