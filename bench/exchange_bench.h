// What a step's exchanges of gradients cost a rank that computes beside, and a message that is
// waited for.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gradwire/communicator.h"
#include "gradwire/registry.h"
#include "gradwire/status.h"

namespace gradwire::bench {

// Equal on both ranks.
struct ExchangeBenchOptions {
  std::vector<std::string> compressors{"none"};  // specs; small tensors are compressed, too
  std::vector<std::int64_t> elements{64};        // of a tensor, fp32
  int rounds = 40;                               // timed, of which the median counts
  double pause_seconds = 3e-3;                   // of computation between two rounds
};

struct ExchangeRow {
  // An aggregator's step of one tensor; of several tensors, or buckets of one tensor each, none of
  // which is compressed; a message until it is there, half of a round trip; or until its sender
  // goes on.
  enum class What : std::uint8_t { kExchange, kTensors, kBuckets, kMessage, kSend };
  What what = What::kExchange;
  std::string compressor;  // empty of a message
  std::int64_t elements = 1;
  int count = 1;       // tensors, buckets
  double seconds = 0;  // wall-clock
};
// "exchange", "tensors", "buckets", "message" or "send".
std::string to_string(ExchangeRow::What what);

// Collective over two ranks; calls `on_row` on rank 0 after each, from this thread. A round begins
// behind a while of computation, as a step's exchange does behind backward: other threads of the
// rank sleep then, and caches hold something else. Its time is from the first gradient that is
// ready until finish() returns, on the rank that waits less for the other. A message goes to a
// rank that sleeps, and comes back. kInvalidArgument for bad options or another number of ranks,
// else the communicator's or aggregator's errors.
Status bench_exchanges(Communicator& communicator, const Registry& registry,
                       const ExchangeBenchOptions& options,
                       const std::function<Status(const ExchangeRow&)>& on_row);

}  // namespace gradwire::bench
