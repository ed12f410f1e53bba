#include "collectives/cost/compressed.h"

#include <algorithm>
#include <string_view>

#include "collectives/cost/forms.h"

namespace gradwire {
namespace {

// Terms of both kinds: what every message waits for, and what bytes take.
struct Parts {
  ExactTime startups;
  ExactTime bytes;
};

Parts parts_of(CostTerms terms, const LinkModel& links) {
  const ExactTime all = time_of(terms, links);
  terms.beta_bytes = terms.beta_intra_bytes = terms.gamma_bytes = 0;
  const ExactTime startups = time_of(terms, links);
  return {startups, ExactTime::from_seconds(all.seconds() - startups.seconds())};
}

CompressedCost overlapped(const CompressedQuestion& question, const CostTerms& terms,
                          double passes) {
  const Parts parts = parts_of(terms, question.raw.links);
  CompressedCost cost;
  cost.codec_seconds = passes * static_cast<double>(question.raw.bytes) * question.codec;
  cost.wire_seconds = parts.startups.seconds() + parts.bytes.seconds();
  const double bytes = parts.bytes.seconds();
  cost.seconds = parts.startups.seconds() + std::max(bytes, cost.codec_seconds) +
                 std::min(bytes, cost.codec_seconds) / question.segments;
  return cost;
}

CompressedCost two_bursts(const CompressedQuestion& question, const CostShape& shape,
                          double passes) {
  const std::int64_t chunk = (question.payload_bytes.front() + shape.p - 1) / shape.p;
  const CostTerms hop = shape.burst(shape.p - 1, chunk);
  CompressedCost cost = overlapped(question, hop + hop, passes);
  cost.wire_bytes_max = 2 * (shape.p - 1) * chunk;
  cost.rounds = 2;
  return cost;
}

CompressedCost gather(const CompressedQuestion& question, const CostShape& shape) {
  const std::int64_t payload = question.payload_bytes.front();
  const double share = static_cast<double>(payload) / static_cast<double>(question.raw.bytes);
  CompressedCost cost = overlapped(question, shape.burst(shape.p - 1, payload),
                                   1 + static_cast<double>(shape.p) * share);
  cost.wire_bytes_max = (shape.p - 1) * payload;
  cost.rounds = 1;
  return cost;
}

CompressedCost sum(const CompressedQuestion& question) {
  CompressedCost cost;
  for (const std::int64_t payload : question.payload_bytes) {
    CostQuestion factor = question.raw;
    factor.bytes = payload;
    const auto best = cost_of(factor, choose_algorithm(factor));
    if (!best) continue;
    cost.wire_seconds += time_of(best->terms, factor.links).seconds();
    cost.wire_bytes_max += best->wire_bytes_max;
    cost.rounds += best->rounds;
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

CompressedCost compressed_cost(const CompressedQuestion& question) {
  const CostShape shape(question.raw);
  switch (question.exchange) {
    case CompressedExchange::kTwoHop: return two_bursts(question, shape, 3);
    case CompressedExchange::kGather: return gather(question, shape);
    case CompressedExchange::kReselect: return two_bursts(question, shape, 1.2);
    case CompressedExchange::kSum: return sum(question);
  }
  return {};
}

}  // namespace gradwire
