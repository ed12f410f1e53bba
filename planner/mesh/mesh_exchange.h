// What exchanges among the ranks of a mesh take, as closed forms over their slowest hop.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "planner/mesh/mesh_links.h"
#include "planner/mesh/mesh_rates.h"

namespace gradwire {

struct MeshExchange {
  std::int64_t ticks = 0;    // nanoseconds that the rank's queue is taken
  std::int64_t latency = 0;  // nanoseconds behind it; exchanges behind one another overlap in it
  double sent = 0;           // bytes of a rank
};

// A ring's reduce-scatter or all-gather: n - 1 messages of 1/n. An all-reduce is both.
// Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009.
MeshExchange ring_half(const MeshLink& link, double bytes);
MeshExchange ring_all_reduce(const MeshLink& link, double bytes);

// A compressor of gradients as a ratio of bytes, and how its payloads are combined.
class MeshCompression {
 public:
  // One method's spec. Payloads are those of a square matrix of 2^24 elements. Errors as
  // Registry::make().
  static Result<MeshCompression> make(const std::string& spec);

  // Of `bytes` of fp32 gradients among the ranks of a ring, of which `direct` is the slowest path
  // where each sends to each: the fastest of what the method may do (all to their owners and back,
  // everything to everybody, a ring's sum of payloads), beside encoding and decoding, of which
  // 1/64 does not overlap.
  MeshExchange exchange(const MeshLink& ring, const MeshLink& direct, double bytes,
                        double codec_byte) const;
  // "none": gradients go as they are.
  bool none() const { return none_; }

 private:
  bool none_ = false;
  bool sums_ = false;
  bool elementwise_ = false;
  std::vector<double> ratios_;  // of payload to fp32, by round
};

}  // namespace gradwire
