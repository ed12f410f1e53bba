#include "apps/plan/plan_rows.h"

#include <algorithm>
#include <utility>

#include "apps/sim/sim_rows.h"
#include "base/text.h"
#include "collectives/cost/choice.h"

namespace gradwire {
namespace {

// Gradients and parameters travel as they are stored.
double travelling_bytes(const PlanQuestion& q) { return q.precision == "fp32" ? 4 : 2; }

CostQuestion question_of(const PlanQuestion& q, OpKind collective, double elems,
                         double elem_bytes) {
  CostQuestion asked;
  asked.collective = collective;
  asked.ranks = asked.nodes = static_cast<int>(replicas(q));
  asked.bytes = static_cast<std::int64_t>(elems * elem_bytes);
  asked.elem_bytes = static_cast<std::int64_t>(elem_bytes);
  asked.links = q.links;
  return asked;
}

PlanTraffic traffic_of(const PlanQuestion& q, const std::string& whose, OpKind collective,
                       double elems, double elem_bytes) {
  const CostQuestion asked = question_of(q, collective, elems, elem_bytes);
  PlanTraffic traffic;
  traffic.what = whose + ", " + std::string(schedule_name(collective));
  traffic.algorithm = choose_algorithm(asked);
  if (const auto cost = cost_of(asked, traffic.algorithm); cost.has_value()) {
    traffic.wire_bytes = static_cast<double>(cost.value().wire_bytes_max);
    traffic.seconds = cost.value().time.seconds();
  }
  return traffic;
}

// The same, once for each of so many micro-batches.
PlanTraffic times(std::int64_t micro_batches, PlanTraffic traffic) {
  if (micro_batches == 1) return traffic;
  traffic.what += format(", %lld times", static_cast<long long>(micro_batches));
  traffic.wire_bytes *= static_cast<double>(micro_batches);
  traffic.seconds *= static_cast<double>(micro_batches);
  return traffic;
}

PlanStep step_of(const PlanQuestion& q, int stage, double params) {
  PlanStep step;
  step.name = std::to_string(stage);
  const OpKind reduce = stage == 0 ? OpKind::kAllReduce : OpKind::kReduceScatter;
  step.traffic.push_back(times(reduces_each(q) ? q.accumulate : 1,
                               traffic_of(q, "gradients", reduce, params, travelling_bytes(q))));
  if (stage == 0) return step;
  // At stage 3 for every pass of every micro-batch; stages of a pipeline gather once a step.
  const bool each_pass = stage == 3 && q.parallel.pp == 1;
  const char* when[] = {"parameters", "parameters for backward"};
  for (int pass = 0; pass < (each_pass ? 2 : 1); ++pass) {
    step.traffic.push_back(
        times(each_pass ? q.accumulate : 1,
              traffic_of(q, when[pass], OpKind::kAllGather, params, travelling_bytes(q))));
  }
  return step;
}

}  // namespace

double PlanStep::wire_bytes() const {
  double sum = 0;
  for (const PlanTraffic& one : traffic) sum += one.wire_bytes;
  return sum;
}

double PlanStep::seconds() const {
  double sum = 0;
  for (const PlanTraffic& one : traffic) sum += one.seconds;
  return sum;
}

Result<std::vector<PlanMemory>> plan_memory(const PlanQuestion& question, const PlanRanks& ranks) {
  std::vector<PlanMemory> rows;
  for (int stage = 0; stage < zero_stages(question); ++stage) {
    GW_ASSIGN(const MemoryQuestion asked, memory_question(question, stage));
    PlanMemory row;
    row.stage = stage;
    row.bytes = training_memory(asked);
    double held = question.params / static_cast<double>(question.parallel.tp);
    for (const PlanRank& one : ranks[static_cast<std::size_t>(stage)]) {
      if (one.rank > 0 && one.bytes.total() <= row.bytes.total()) continue;
      row.bytes = one.bytes;
      row.rank = one.rank;
      held = one.params;
    }
    const double state = row.bytes.params + row.bytes.grads + row.bytes.optimizer;
    row.state_per_param = held > 0 ? state / held : 0;
    row.saving = saving(asked);
    row.fits =
        question.device_mem == 0 || row.bytes.total() <= static_cast<double>(question.device_mem);
    rows.push_back(row);
  }
  return rows;
}

Result<std::vector<PlanStep>> plan_steps(const PlanQuestion& q, const PlanRanks& ranks) {
  double params = q.params / static_cast<double>(q.parallel.tp);
  if (!ranks.front().empty()) {  // the parts' replicas exchange beside one another
    params = 0;
    for (const PlanRank& rank : ranks.front()) params = std::max(params, rank.params);
  }
  std::vector<PlanStep> steps;
  for (int stage = 0; stage < zero_stages(q); ++stage) {
    steps.push_back(step_of(q, stage, params));
  }
  if (q.compressor.empty()) return steps;
  constexpr double kCodedBytes = 4;    // an element's, as methods get it
  constexpr double kCodec = 1 / 35e9;  // seconds per raw byte and pass, as gradwire sim has it
  const CostQuestion raw = question_of(q, OpKind::kAllReduce, params, kCodedBytes);
  GW_ASSIGN(const std::vector<SimRow> rows, compressed_rows(raw, q.compressor, kCodec));
  for (const SimRow& row : rows) {
    PlanStep step;
    step.name = row.algorithm;
    step.traffic.push_back(times(reduces_each(q) ? q.accumulate : 1,
                                 {"gradients, compressed", row.algorithm,
                                  static_cast<double>(row.wire_bytes_max), row.seconds}));
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace gradwire
