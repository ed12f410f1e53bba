// What an aggregator's exchanges keep between steps, told beforehand from what methods claim of
// their payloads and states.
#pragma once

#include <cstdint>
#include <span>

#include "aggregate/plan/plan.h"
#include "gradwire/aggregator.h"

namespace gradwire {

struct HeldQuestion {
  int size = 1;                                       // ranks
  std::int64_t bucket_bytes = std::int64_t{4} << 20;  // AggregatorOptions::bucket_bytes
  AggregateForm form = AggregateForm::kAllReduce;     // AggregatorOptions::form
  bool lean = false;                                  // AggregatorOptions::lean
  // Whether gradients lie one after another in memory, in the order of the parameters: those that
  // go as they are are then summed where they lie.
  bool adjacent = true;
};

struct PredictedHeld {
  std::uint64_t bytes = 0;
  bool exact = true;  // else at most so many: lengths of payloads vary with the data
  PredictedHeld& operator+=(const PredictedHeld& other) {
    bytes += other.bytes;
    exact = exact && other.exact;
    return *this;
  }
};

// AggregateStats::held_bytes of rank 0, which has the longest shards, for gradients in host memory
// on one level. Under `lean` exact shards keep nothing: within a step the buckets in work, at most
// kBucketsInWork of them, have their pages besides. Of the parameters' gradients only shape and
// type are looked at.
PredictedHeld predict_held(std::span<const Parameter> parameters, const HeldQuestion& question);

}  // namespace gradwire
