#include "apps/sim/compressed_cost.h"

#include <algorithm>
#include <string_view>

#include "collectives/cost/choice.h"

namespace gradwire {
namespace {

// `hops` times a message of so many bytes from every rank to every other, all at once.
struct Hops {
  double startups = 0;  // seconds
  double bytes = 0;     // seconds
  std::int64_t wire_bytes_max = 0;
  int rounds = 0;
};

Result<Hops> hops(const CostQuestion& raw, int count, std::int64_t bytes) {
  CostQuestion hop = raw;
  hop.collective = OpKind::kAllGather;
  hop.elem_bytes = 1;
  hop.bytes = bytes * raw.ranks;
  GW_ASSIGN(const AlgorithmCost whole, cost_of(hop, "direct"));
  hop.links.beta = hop.links.beta_intra = 0;
  GW_ASSIGN(const AlgorithmCost startups, cost_of(hop, "direct"));
  return Hops{count * startups.time.seconds(), count * (whole.time - startups.time).seconds(),
              count * whole.wire_bytes_max, count};
}

CompressedCost overlapped(const CompressedQuestion& question, const Hops& wire, double passes) {
  CompressedCost cost{.wire_seconds = wire.startups + wire.bytes,
                      .wire_bytes_max = wire.wire_bytes_max,
                      .rounds = wire.rounds};
  cost.codec_seconds = passes * static_cast<double>(question.raw.bytes) * question.codec;
  cost.seconds = wire.startups + std::max(wire.bytes, cost.codec_seconds) +
                 std::min(wire.bytes, cost.codec_seconds) / question.segments;
  return cost;
}

Result<CompressedCost> two_hops(const CompressedQuestion& question, double passes) {
  const std::int64_t ranks = question.raw.ranks;
  const std::int64_t chunk = (question.payload_bytes.front() + ranks - 1) / ranks;
  GW_ASSIGN(const Hops wire, hops(question.raw, 2, chunk));
  return overlapped(question, wire, passes);
}

Result<CompressedCost> gather(const CompressedQuestion& question) {
  const std::int64_t payload = question.payload_bytes.front();
  const double share = static_cast<double>(payload) / static_cast<double>(question.raw.bytes);
  GW_ASSIGN(const Hops wire, hops(question.raw, 1, payload));
  return overlapped(question, wire, 1 + question.raw.ranks * share);
}

Result<CompressedCost> sum(const CompressedQuestion& question) {
  CompressedCost cost;
  for (const std::int64_t payload : question.payload_bytes) {
    CostQuestion factor = question.raw;
    factor.bytes = payload;
    GW_ASSIGN(const AlgorithmCost best, cost_of(factor, choose_algorithm(factor)));
    cost.wire_seconds += best.time.seconds();
    cost.wire_bytes_max += best.wire_bytes_max;
    cost.rounds += best.rounds;
  }
  cost.codec_seconds = 3 * static_cast<double>(question.raw.bytes) * question.codec;
  cost.seconds = cost.wire_seconds + cost.codec_seconds;
  return cost;
}

}  // namespace

std::string_view to_string(CompressedExchange exchange) {
  switch (exchange) {
    case CompressedExchange::kTwoHop: return "two-hop";
    case CompressedExchange::kGather: return "all-gather";
    case CompressedExchange::kReselect: return "split and re-select";
    case CompressedExchange::kSum: return "all-reduce of payloads";
  }
  return "?";
}

Result<CompressedCost> compressed_cost(const CompressedQuestion& question) {
  switch (question.exchange) {
    case CompressedExchange::kTwoHop: return two_hops(question, 3);
    case CompressedExchange::kGather: return gather(question);
    case CompressedExchange::kReselect: return two_hops(question, 1.2);
    case CompressedExchange::kSum: return sum(question);
  }
  return CompressedCost{};
}

}  // namespace gradwire
