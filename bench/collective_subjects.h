// What bench_collective() times: one operation at one size.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "bench/collective_bench.h"
#include "collectives/selection.h"

namespace gradwire::bench {

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
};

// S = 4 * elems bytes; elems is a multiple of the number of ranks where rows are.
Result<std::unique_ptr<Subject>> make_dense_subject(Communicator& communicator,
                                                    Collective collective,
                                                    const CollectiveBenchOptions& options,
                                                    std::int64_t elems);
Result<std::unique_ptr<Subject>> make_compressed_subject(Communicator& communicator,
                                                         const Registry& registry,
                                                         const CollectiveBenchOptions& options,
                                                         std::int64_t elems);

}  // namespace gradwire::bench
