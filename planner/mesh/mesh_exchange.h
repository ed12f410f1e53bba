// What exchanges among the ranks of a mesh take, as closed forms over their slowest hop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "aggregate/plan/plan.h"
#include "gradwire/status.h"
#include "planner/mesh/mesh_links.h"
#include "planner/mesh/mesh_model.h"
#include "planner/mesh/mesh_rates.h"
#include "trainer/parameters.h"

namespace gradwire {

struct MeshExchange {
  std::int64_t ticks = 0;    // nanoseconds that the rank's queue is taken
  std::int64_t latency = 0;  // nanoseconds behind it; exchanges behind one another overlap in it
  double sent = 0;           // bytes of a rank
  // Nanoseconds of the processor that computes: before anything is sent (encoding), while it is
  // under way (messages), and behind it (decoding).
  std::int64_t before = 0;
  std::int64_t beside = 0;
  std::int64_t behind = 0;

  bool any() const { return sent > 0; }
  // Where nothing else is done meanwhile.
  std::int64_t whole() const { return before + std::max(ticks, beside) + latency + behind; }
  // That much more of the processor, half of it before anything is sent.
  void take_longer(std::int64_t by) {
    before += by / 2;
    behind += by - by / 2;
  }
  // One that waits for the other.
  MeshExchange& operator+=(const MeshExchange& other);
};

// A ring's reduce-scatter or all-gather: n - 1 messages of 1/n. An all-reduce is both.
// Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009.
MeshExchange ring_half(const MeshLink& link, double bytes);
MeshExchange ring_all_reduce(const MeshLink& link, double bytes);
// Each sends each its part at once, which it folds in the order of ranks, and what it made of that
// to each: the bytes of a ring, two latencies ("canonical", as ranks that share tensors sum). Half:
// one of the two.
MeshExchange canonical_all_reduce(const MeshLink& link, double bytes);
MeshExchange canonical_half(const MeshLink& link, double bytes);

// One that an aggregator does: with what a bucket was measured to take besides its bytes.
MeshExchange with_a_bucket(const MeshLink& ring, MeshExchange exchange);

// Gradients of a layer that take the same way: how many fp32 elements, and what a rank's payload of
// them is in each round.
struct MeshGradients {
  double elems = 0;
  std::vector<double> payloads = {};  // bytes; empty: they go as they are
  MeshGradients& operator+=(const MeshGradients& other);
};

// A compressor of gradients: a spec or rules, as `gradwire train --compressor` reads them. Not
// thread-safe.
class MeshCompression {
 public:
  // `momentum`: of the optimizer, for pairs that do not bear it. kInvalidArgument: no text of a
  // compressor, or a pair that training refuses.
  static Result<MeshCompression> make(const std::string& spec, double momentum = 0);

  // "none": gradients go as they are.
  bool none() const { return none_; }
  // Ways that gradients may take: 0 uncompressed, then each rule.
  std::size_t ways() const { return rules_->rules.size() + 1; }
  // A layer's gradients among `ranks`, by way; kept for the layer, which must stay where it is.
  // kInvalidArgument: a parameter that no rule is for, or whose pair is refused.
  Result<const std::vector<MeshGradients>*> gradients(const MeshLayerWork& layer, int ranks) const;

  // What the aggregator does with each gradient of `table`, of `dtype`; views of nothing, as shapes
  // alone count. Errors as of gradients().
  Result<std::vector<Parameter>> planned(const ParameterTable& table, DType dtype) const;

  // Of gradients that take way `way`, each element of `element_bytes` where it is sent as it is.
  // They go as the aggregator sends them: uncompressed, or payloads that add up, by a ring; by
  // owners of a part each, who decode, add and encode once more; or all to all. `direct` is the
  // slowest path where each sends to each. Codecs that `rates` has not measured on the type run
  // beside what is sent, and 1/64 of it does not overlap. Where the ring's profile has steps of an
  // aggregator, the processor has besides what such a step between two ranks took longer than its
  // codecs, bytes and latencies, at least a bucket's time; and a bucket's time for each more rank.
  MeshExchange exchange(std::size_t way, const MeshGradients& gradients, const MeshLink& ring,
                        const MeshLink& direct, double element_bytes, const MeshRates& rates,
                        const DeviceType& type) const;

 private:
  MeshExchange foretold(std::size_t way, const MeshGradients& gradients, const MeshLink& ring,
                        const MeshLink& direct, double element_bytes, const MeshRates& rates,
                        const DeviceType& type) const;
  MeshExchange coded(const Rule& rule, const MeshGradients& gradients, const MeshLink& ring,
                     const MeshLink& direct) const;
  Result<std::vector<MeshGradients>> found(const MeshLayerWork& layer, int ranks) const;
  Result<Parameter> planned(const std::string& name, const Shape& shape, DType dtype) const;

  bool none_ = false;
  AggregatorOptions options_;
  std::shared_ptr<Plan> rules_ = nullptr;  // which notes warnings
  mutable std::map<std::pair<const MeshLayerWork*, int>, std::vector<MeshGradients>> known_;
};

}  // namespace gradwire
