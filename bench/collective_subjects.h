// What bench_collective() times: one operation at one size.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "bench/collective_bench.h"
#include "collectives/schedules/op_traits.h"

namespace gradwire::bench {

// One of the operations that can be measured.
struct BenchOperation {
  std::string_view name;
  std::optional<OpKind> kind = {};        // none: send_recv
  std::optional<OpKind> collective = {};  // none: send_recv
  bool has_rows = false;                  // S is `ranks` rows
  bool has_root = false;
  bool reduces = false;
  bool usually_in_place = false;
};
// kInvalidArgument with the names that are known.
Result<BenchOperation> bench_operation_named(std::string_view name);

// That an operation of that size has under way each way.
int messages_of(const CollectiveBenchOptions& options, std::int64_t bytes);

// Seconds in coders and exchanges since the beginning, on this rank.
struct CodecSeconds {
  double encode = 0;
  double exchange = 0;
  double decode = 0;
};

// Its memory, how to run it, and what is right.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual Status run() = 0;
  // Runs once on checked data; the number of wrong elements on this rank.
  virtual Result<std::int64_t> check() = 0;
  // Message bytes that this rank has sent for it.
  virtual std::uint64_t bytes_sent() const = 0;
  virtual std::string algorithm() const = 0;
  virtual CodecSeconds codec_seconds() const { return {}; }
  // Of what the first check() made, for compressed runs.
  virtual double error_norm() const { return 0; }
};

// S = elems elements; elems is a multiple of the number of ranks where rows are.
Result<std::unique_ptr<Subject>> make_dense_subject(Communicator& communicator,
                                                    const BenchOperation& operation,
                                                    const CollectiveBenchOptions& options,
                                                    std::int64_t elems);
Result<std::unique_ptr<Subject>> make_compressed_subject(Communicator& communicator,
                                                         const Registry& registry,
                                                         const CollectiveBenchOptions& options,
                                                         std::int64_t elems);

}  // namespace gradwire::bench
