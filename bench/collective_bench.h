// What a collective costs at each size, dense or through an aggregator with a compressor, and
// whether its result is right.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/communicator.h"
#include "gradwire/registry.h"

namespace gradwire::bench {

// Timed operations that come before the measured ones at each size, and do not count.
constexpr int kWarmUps = 3;

// Equal on all ranks, but for the number of `device`.
struct CollectiveBenchOptions {
  // all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather, scatter, all_to_all,
  // barrier; send_recv: to the next rank and from the one before, at the same time.
  std::string operation = "all_reduce";
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;  // of reductions
  int root = 0;
  // Unset: all_reduce and broadcast in place, the others out of place. send_recv cannot be.
  std::optional<bool> in_place;
  std::int64_t min_bytes = 1 << 10;   // of S: the tensor, or all ranks' rows together where there
  std::int64_t max_bytes = 64 << 20;  // are rows
  double factor = 2;                  // from one size to the next, above 1
  // Other than "none" (all_reduce of f32 only): an Aggregator averages one fp32 matrix_of(N) with
  // it; "min_elems=0,dense_1d=false" unless the spec says otherwise. The dense all_reduce of the
  // same tensor is timed before.
  std::string compressor = "none";
  std::string algorithm = "auto";
  // Whether tensors lie in memory of the communicator's (Communicator::allocate), which ranks of
  // one host read where it is, or in the caller's (new[]).
  bool shared_buffers = false;
  // Where tensors lie: the host, or a CUDA device, from which and to which nothing is copied but to
  // check results. Not with shared_buffers.
  Device device = {};
  // Binds the calling thread to processor `rank` meanwhile, as mpirun does with its ranks, if there
  // is one for every rank.
  bool bind = true;
  bool check = true;        // results, once at each size
  bool persistent = false;  // planned once at each size; dense runs only
  // Of send_recv: messages of one tag that an operation has under way each way; 0: 64, or as many
  // as come to 256 MiB. More than one, or one way: all from and to the same memory.
  int messages = 1;
  // Of send_recv: even ranks send to the next one, which answers with one element when it has all.
  bool one_way = false;
  bool one_process = false;     // ranks are threads of one process: its CPU time is that of all
  std::string transport;        // label for the rows; "shm": "auto" is what shared memory does
  double seconds_per_size = 1;  // of timed operations, roughly
  int min_operations = 10;      // timed at each size, at least
  int max_operations = 2000;    // and at most
};

// Microseconds of an operation, that of its slowest rank.
struct OperationTimes {
  double min = 0;
  double mean = 0;
  double p50 = 0;
  double p99 = 0;
  double max = 0;
};

// What a compressor adds to a row. Times are rank 0's own, per operation.
struct CompressedFigures {
  double ratio = 0;      // wire bytes of the dense run / of this one
  double wire_gbps = 0;  // wire bytes / p50
  double encode_us = 0;
  double exchange_us = 0;
  double decode_us = 0;
  // |average - exact average| / |exact average| of the first operation, which has no residual yet.
  double error_norm = 0;
  double dense_time_us_p50 = 0;
  double dense_algbw_gbps = 0;
  std::int64_t dense_wire_bytes = 0;
  double dense_cpu_seconds_per_gb = 0;
  double speedup = 0;  // dense p50 / p50
};

// Times are per operation, that of its slowest rank. GB are 10^9 bytes.
struct CollectiveRow {
  std::string op;
  std::string algorithm;  // what "auto" stood for; as given for compressed runs
  std::string transport;
  std::string compressor;
  std::string buffers;  // as buffers_of() says
  std::string redop;    // "none" where nothing is reduced
  int root = -1;        // -1 where there is none
  bool in_place = false;
  int ranks = 1;
  int nodes = 1;           // that they are on; as many as ranks where nobody knows
  std::int64_t bytes = 0;  // S, rounded down to ranks x element size, at least one element
  int messages = 1;        // of S each, that an operation sends one way
  std::string dtype;
  int operations = 0;  // timed
  OperationTimes time_us;
  double algbw_gbps = 0;  // S x messages / p50
  // Dense: S / p50 times what the best algorithm makes every rank send of S: 2(p-1)/p (all_reduce),
  // (p-1)/p (where there are rows) or 1. Compressed: wire bytes / p50.
  double busbw_gbps = 0;
  std::int64_t wire_bytes = 0;  // message bytes of one operation, of the rank that sends most
  // CPU time, user and system, per GB of S, averaged over ranks.
  double cpu_seconds_per_gb = 0;
  bool checked = true;
  // Elements, over all ranks. Dense: that differ from the exact answer (data whose reduction is
  // exact in any order). Compressed: that are not finite or differ from rank 0's.
  std::int64_t wrong = 0;
  std::optional<CompressedFigures> compressed = {};
  std::string dense_algorithm = {};  // of the dense run beside a compressed one
};

// The operations that can be measured.
std::vector<std::string> bench_operations();

// Where tensors lie: "private", "shared", "cuda:0".
std::string buffers_of(const CollectiveBenchOptions& options);

// Collective. Calls `on_row` on rank 0 after each size, from this thread. kInvalidArgument for bad
// options, else the communicator's or aggregator's errors.
Status bench_collective(Communicator& communicator, const Registry& registry,
                        const CollectiveBenchOptions& options,
                        const std::function<Status(const CollectiveRow&)>& on_row);

// "topk:ratio=0.01" -> "topk:ratio=0.01,min_elems=0,dense_1d=false"; keys that are there stay.
Result<std::string> bare_spec(const std::string& spec);

}  // namespace gradwire::bench
