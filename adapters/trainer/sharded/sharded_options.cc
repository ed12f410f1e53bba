#include "adapters/trainer/sharded/sharded_options.h"

#include <algorithm>
#include <vector>

#include "adapters/trainer/compressor_check.h"
#include "aggregate/plan/plan.h"
#include "base/text.h"

namespace gradwire {
namespace {

// Gathers by layers keep nothing between steps, and two ranks must not draw differently after a
// checkpoint: plain rounding, or nothing at all.
Status check_gathered(const std::string& compressor) {
  GW_ASSIGN(const std::vector<SpecRule> rules, parse_spec_rules(compressor));
  for (const SpecRule& rule : rules) {
    for (const Spec& stage : rule.spec) {
      const bool plain = stage.name == "none" || stage.name == "cast";
      const bool feeds_back = std::ranges::any_of(
          stage.params, [](const auto& param) { return param.first.starts_with("ef"); });
      if (plain && !feeds_back) continue;
      return {Code::kInvalidArgument, "sharded training, stage 3: parameters as '" + compressor +
                                          "' (expected none or cast, without error feedback)"};
    }
  }
  return {};
}

}  // namespace

Status check_sharded_options(const ShardedOptions& options, const TrainerMemory& memory) {
  if (options.stage < 1 || options.stage > 3) {
    return {Code::kInvalidArgument,
            format("sharded training: stage %d (expected 1 to 3)", options.stage)};
  }
  if (options.stage < 3 && options.offload == Offload::kParameters) {
    return {Code::kInvalidArgument, format("sharded training: parameters offloaded at stage %d "
                                           "(expected to offload the optimizer, or stage 3)",
                                           options.stage)};
  }
  if (options.offload != Offload::kNone && options.optimizer.name == "lamb") {
    return {Code::kInvalidArgument,
            "lamb, which needs whole tensors, is offloaded (expected sgd, nesterov or adamw)"};
  }
  if (memory.parameters.size() == 0) {
    return {Code::kInvalidArgument, "sharded training: a model without parameters"};
  }
  if (options.parallel.reduce_each) {
    GW_TRY(check_no_feedback(options.parallel.aggregator.compressor));
  }
  return options.stage == 3 ? check_gathered(options.parameters) : Status();
}

Status check_sharded_compressor(const Registry& registry, const DataParallelOptions& options) {
  AggregatorOptions reduce = options.aggregator;
  reduce.form = AggregateForm::kReduceScatter;
  reduce.traffic = TrafficClass::kGradients;
  return read_plan(registry, reduce).error().with_context("sharded gradients");
}

}  // namespace gradwire
