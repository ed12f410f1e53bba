// What exchanging compressed gradients costs: the wire by the links, the codec by a rate, one
// behind the other in segments.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "collectives/cost/model.h"

namespace gradwire {

enum class CompressedExchange : std::uint8_t {
  kTwoHop,    // every rank's chunks to their owners, who add, encode again and send to all: what
              // combine=sra does
  kGather,    // everybody's payload to everybody: combine=gather
  kReselect,  // sparse: as kTwoHop, owners keep the largest of the sum
  kSum,       // payloads that may be added: all-reduce, one after another: combine=sum
};
std::string_view to_string(CompressedExchange exchange);

struct CompressedQuestion {
  CostQuestion raw;  // an all-reduce of so many bytes, if nothing were compressed
  CompressedExchange exchange = CompressedExchange::kTwoHop;
  std::vector<std::int64_t> payload_bytes;  // of one rank's whole gradient; by round for kSum
  double codec = 1 / 35e9;                  // seconds per raw byte of one pass
  int segments = 64;                        // so many in flight after one another
};

struct CompressedCost {
  double seconds = 0;
  double wire_seconds = 0;
  double codec_seconds = 0;
  std::int64_t wire_bytes_max = 0;  // sent by the rank that sends most
  int rounds = 0;
};

// Start-ups + max(wire, codec) + min(wire, codec) / segments; for kSum, whose rounds wait for one
// another, the sum of both. Passes over the raw gradient: kTwoHop three (encode; decode and add;
// decode the result), kGather one and the payloads of all ranks, kReselect 1.2, kSum three (two
// products and the reconstruction of PowerSGD). Errors are cost_of()'s.
Result<CompressedCost> compressed_cost(const CompressedQuestion& question);

}  // namespace gradwire
