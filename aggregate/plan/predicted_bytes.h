// What a step's exchanges send, told beforehand from what methods claim of their payloads.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "aggregate/plan/node_groups.h"
#include "aggregate/plan/plan.h"
#include "gradwire/aggregator.h"

namespace gradwire {

struct PredictedBytes {
  std::uint64_t most = 0;  // sent by a rank in a step: exactly so many, but for cuts of a few bytes
  std::uint64_t dense = 0;  // likewise, were nothing compressed: a ring for each tensor
  bool exact = true;        // else at most so many, for lengths that vary with the data or the step
  std::string spec;         // of the method that sends most beyond what its gradients would, if any
  Path path = Path::kDense;  // its
  int ranks = 1;             // among which it travels
};

// Of rank `rank` of `size`. On two levels, where `nodes` says so, what this rank sends between
// nodes alone counts, of one and of the other: links inside a node are fast. Rings: a payload that
// every rank receives is sent on by all but one, one that is summed as a gradient would be. Pairs
// that are chosen from twice (Path::kOkTopk) count as uncompressed.
//   none, dense     2 (n - 1)/n of the gradient
//   sum             2 (n - 1)/n of each round's payload; maxima alike
//   gather          (n - 1) payloads
//   sra             the other ranks' shards, and (n - 1) times one's own
PredictedBytes predict_bytes(std::span<const Parameter> parameters, int rank, int size,
                             AggregateForm form, const NodeGroups* nodes = nullptr);

// "compressor 'lossless': ... ": that a step sent `sent` bytes where uncompressed gradients would
// have sent `dense`, which are fewer.
std::string more_than_dense(const std::string& compressor, const PredictedBytes& predicted,
                            std::uint64_t sent, std::uint64_t dense, bool between_nodes = false);

}  // namespace gradwire
