#include "apps/train/parallel/stages_flag.h"

#include <string>

#include "adapters/trainer/optimizers/optimizer_spec.h"

namespace gradwire {

const std::vector<UnservedByStages>& unserved_by_stages() {
  using Options = const TrainOptions&;
  static const std::vector<UnservedByStages> all{
      {"--optimizer", "sgd, nesterov, adamw or lamb",
       [](Options o) {
         const auto choice = parse_optimizer(o.optimizer);
         return choice.has_value() && choice.value().method.has_value();
       }},
      {"--algorithm", "--algorithm auto or canonical, or no --tied",
       [](Options o) { return o.tied && o.algorithm != "auto" && o.algorithm != "canonical"; }},
      {"--compressor", "one without intra_node=, or no --tied",
       [](Options o) { return o.tied && o.compressor.find("intra_node=") != std::string::npos; }},
      {"--momentum-at", "--momentum-at server, or no --tied",
       [](Options o) { return o.tied && o.momentum > 0 && o.momentum_at == "worker"; }},
      {"--accumulate-policy", "sum-then-reduce",
       [](Options o) { return o.accumulate_policy != "sum-then-reduce"; }},
      {"--clip-worker", "--clip", [](Options o) { return o.clip_worker > 0; }},
      {"--device", "--device cpu, or neither --memory nor --dry-run",
       [](Options o) { return o.place.space == MemorySpace::kCuda && (o.memory || o.dry_run); }},
      {"--measure-every", "--measure-every 0, or no --tied",
       [](Options o) { return o.tied && o.measure_every > 0; }},
  };
  return all;
}

Status check_stages_served(const TrainOptions& options) {
  if (options.parallel.pp == 1) return {};
  for (const UnservedByStages& one : unserved_by_stages()) {
    if (!one.asked(options)) continue;
    return {Code::kUnsupported, "train: " + std::string(one.flag) + " with --parallel " +
                                    to_string(options.parallel) + " (expected " +
                                    std::string(one.served) + ": docs/pipelines.md)"};
  }
  return {};
}

}  // namespace gradwire
