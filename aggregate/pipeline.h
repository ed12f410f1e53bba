// The order of a step's exchanges, and one step in that order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "aggregate/exchange.h"
#include "gradwire/aggregator.h"
#include "gradwire/status.h"
#include "gradwire/work.h"

namespace gradwire {

// One encodes while another's exchange flies.
inline constexpr int kBucketsInWork = 2;

struct Launch {
  int bucket = 0;  // an exchange's place in the step
  int phase = 0;
  friend bool operator==(const Launch&, const Launch&) = default;
};

// Every phase of every bucket once, phases of a bucket in order, buckets begun in order, at most
// `depth` buckets in work at a time: the oldest exchange makes room. A function of its arguments
// alone, so that all ranks issue alike whatever becomes ready or completes first.
//
//   phases {1, 2, 1}, depth 2:  0.0  1.0  2.0  1.1
std::vector<Launch> launch_order(std::span<const int> phases, int depth);

// What a step cost, on this rank.
struct StepCost {
  std::uint64_t payload_bytes = 0;
  double encode_seconds = 0;
  double exchange_seconds = 0;
  double decode_seconds = 0;
};

// Where the pipeline gets its gradients and its patience from. A bucket may have several exchanges,
// one after the other in a step, of which each is named by its place there.
class StepSource {
 public:
  virtual ~StepSource() = default;
  virtual int bucket_of(int exchange) const { return exchange; }
  virtual bool is_ready(int exchange) = 0;
  // Blocks until all gradients of its bucket are final; kCancelled at the aggregator's end.
  virtual Status wait_ready(int exchange) = 0;
  // Blocks until `work` is done; kCancelled at the aggregator's end.
  virtual Status wait(Work& work) = 0;
  // The exchange's last phase is absorbed.
  virtual void landed(int /*exchange*/) {}
  // A piece of work has ended; its traffic is not filled in.
  virtual void told(const AggregateSpan& /*span*/) {}
};

// Encode and issue an exchange while the one before it flies, then absorb the older one. After an
// error the Works in flight are given up, which finishes the communicator; the error names the
// bucket.
Status run_step(std::span<BucketExchange* const> exchanges, std::uint64_t step, StepSource& source,
                StepCost& cost);

}  // namespace gradwire
