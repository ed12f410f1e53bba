#include "apps/sim/sim_rows.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "apps/sim/compressed_cost.h"
#include "collectives/cost/choice.h"
#include "gradwire/registry.h"

namespace gradwire {
namespace {

Result<SimRow> row_of(const CostQuestion& question, std::string_view algorithm) {
  GW_ASSIGN(const AlgorithmCost cost, cost_of(question, algorithm));
  SimRow row;
  row.algorithm = algorithm;
  row.simulated = !cost.is_estimate;
  row.seconds = cost.time.seconds();
  row.formula_seconds = row.simulated ? 0 : row.seconds;
  row.wire_bytes_max = cost.wire_bytes_max;
  row.rounds = cost.rounds;
  row.segment_bytes = cost.segment_bytes;
  if (!row.simulated) return row;
  row.node_bytes_max = cost.node_bytes_max;
  row.simulated_ranks = cost.simulated_ranks;
  return row;
}

// A matrix as square as may be, since a low-rank method's payload depends on the shape.
Shape example_shape(std::int64_t elems) {
  const auto side = static_cast<std::int64_t>(std::sqrt(static_cast<double>(elems)));
  return Shape::matrix(std::max<std::int64_t>(side, 1), elems / std::max<std::int64_t>(side, 1));
}

std::vector<CompressedExchange> exchanges_of(const Compressor& compressor) {
  const Traits traits = compressor.traits();
  if (traits.exchange == Exchange::kAllReduceSum) return {CompressedExchange::kSum};
  if (traits.elementwise) return {CompressedExchange::kTwoHop, CompressedExchange::kGather};
  return {CompressedExchange::kGather, CompressedExchange::kReselect};
}

}  // namespace

Result<std::vector<SimRow>> simulate_rows(
    const CostQuestion& question,
    const std::function<void(int done, int total, std::string_view algorithm)>& before) {
  const std::vector<std::string_view> algorithms = algorithms_of(question.collective);
  const std::string_view chosen = choose_algorithm(question);
  std::vector<SimRow> found;
  int done = 0;
  for (const std::string_view algorithm : algorithms) {
    before(done++, static_cast<int>(algorithms.size()), algorithm);
    GW_ASSIGN(SimRow row, row_of(question, algorithm));
    row.chosen = algorithm == chosen;
    found.push_back(std::move(row));
  }
  return found;
}

Result<std::vector<SimRow>> compressed_rows(const CostQuestion& question, const std::string& spec,
                                            double codec) {
  GW_ASSIGN(const std::unique_ptr<Compressor> compressor, Registry::builtin().make(spec));
  const Shape shape = example_shape(elems_of(question));
  CompressedQuestion compressed{.raw = question, .payload_bytes = {}, .codec = codec};
  for (int round = 0; round < compressor->traits().rounds; ++round) {
    compressed.payload_bytes.push_back(static_cast<std::int64_t>(
        compressor->max_payload_bytes(shape, DType::kF32, round, question.ranks)));
  }
  std::vector<SimRow> rows;
  for (const CompressedExchange exchange : exchanges_of(*compressor)) {
    compressed.exchange = exchange;
    GW_ASSIGN(const CompressedCost cost, compressed_cost(compressed));
    SimRow row;
    row.algorithm = compressor->spec() + ", " + std::string(to_string(exchange));
    row.simulated = false;
    row.seconds = row.formula_seconds = cost.seconds;
    row.wire_bytes_max = cost.wire_bytes_max;
    row.rounds = cost.rounds;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace gradwire
