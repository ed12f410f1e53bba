// What a collective costs at each size, dense or through an aggregator with a compressor, and
// whether its result is right.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "gradwire/communicator.h"
#include "gradwire/registry.h"

namespace gradwire::bench {

// Equal on all ranks.
struct CollectiveBenchOptions {
  // all_reduce, reduce_scatter, all_gather, all_to_all, broadcast.
  std::string operation = "all_reduce";
  std::int64_t min_bytes = 1 << 10;   // of S: the tensor; for reduce_scatter, all_gather and
  std::int64_t max_bytes = 64 << 20;  // all_to_all that of all ranks' rows together
  double factor = 2;                  // from one size to the next, above 1
  // Other than "none" (all_reduce only): an Aggregator averages one fp32 matrix_of(N) with it;
  // "min_elems=0,dense_1d=false" unless the spec says otherwise.
  std::string compressor = "none";
  std::string algorithm = "auto";
  // Whether tensors lie in gradwire's own memory (Buffer) or in the caller's (new[]). No transport
  // takes advantage of its own memory yet, so the two differ in alignment alone.
  bool shared_buffers = false;
  // Binds the calling thread to processor `rank` meanwhile, as mpirun does with its ranks, if there
  // is one for every rank.
  bool bind = true;
  std::string transport;        // label for the rows
  double seconds_per_size = 1;  // of timed operations, roughly
  int min_operations = 10;      // timed at each size, at least
  int max_operations = 2000;    // and at most
};

// Times are per operation, that of its slowest rank. GB are 10^9 bytes.
struct CollectiveRow {
  std::string op;
  std::string algorithm;  // what "auto" stood for; as given for compressed runs
  std::string transport;
  std::string compressor;
  std::string buffers;  // "private" or "shared"
  int ranks = 1;
  std::int64_t bytes = 0;  // S, rounded down to ranks x element size, at least one element
  std::string dtype;
  int operations = 0;  // timed
  double time_us_min = 0;
  double time_us_p50 = 0;
  double time_us_p99 = 0;
  double algbw_gbps = 0;  // S / p50
  // Wire bytes of one rank / p50: for dense runs S/t times 2(p-1)/p (all_reduce), (p-1)/p (gather,
  // scatter, all-to-all) or 1 (broadcast); for compressed ones what was really sent.
  double busbw_gbps = 0;
  std::int64_t wire_bytes = 0;  // message bytes of one operation, of the rank that sends most
  // Elements, over all ranks. Dense: that differ from the exact answer (whole numbers whose sum is
  // exact in any order). Compressed: that are not finite or differ from rank 0's.
  std::int64_t wrong = 0;
};

// Collective. Calls `on_row` on rank 0 after each size, from this thread. kInvalidArgument for bad
// options, else the communicator's or aggregator's errors.
Status bench_collective(Communicator& communicator, const Registry& registry,
                        const CollectiveBenchOptions& options,
                        const std::function<Status(const CollectiveRow&)>& on_row);

// "topk:ratio=0.01" -> "topk:ratio=0.01,min_elems=0,dense_1d=false"; keys that are there stay.
Result<std::string> bare_spec(const std::string& spec);

}  // namespace gradwire::bench
