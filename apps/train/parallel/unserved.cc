#include "apps/train/parallel/unserved.h"

#include <string>

#include "adapters/trainer/optimizers/optimizer_spec.h"

namespace gradwire {
namespace {

using Options = const TrainOptions&;

bool exchanges_by_itself(Options o) {
  const auto choice = parse_optimizer(o.optimizer);
  return choice.has_value() && choice.value().method.has_value();
}

// Of whole tensors.
bool steps_by_norms(Options o) {
  const auto choice = parse_optimizer(o.optimizer);
  return choice.has_value() && choice.value().optimizer.name == "lamb";
}

bool orders_sums(Options o) { return o.algorithm != "auto" && o.algorithm != "canonical"; }

bool has_two_levels(Options o) { return o.compressor.find("intra_node=") != std::string::npos; }

bool is_on_device(Options o) { return o.place.space == MemorySpace::kCuda; }

bool divides_images(Options o) { return o.parallel.layout.kind != TensorLayout::Kind::kMegatron; }

}  // namespace

bool goes_without_flush(const TrainOptions& options) {
  const PipelineOrder::Kind kind = options.parallel.order.kind;
  return kind == PipelineOrder::Kind::kPipeDream || kind == PipelineOrder::Kind::k2bw;
}

// Ranks that share tensors hold some of them as a whole, and each averages these among others, as
// both ends of a pipeline do with a tied embedding: the copies stay equal where the bits of an
// average do not depend on its neighbours.
const std::vector<Unserved>& unserved_when_divided() {
  static const std::vector<Unserved> all{
      {"pp", "--optimizer", "sgd, nesterov, adamw or lamb", exchanges_by_itself},
      {"pp", "--algorithm", "--algorithm auto or canonical, or no --tied",
       [](Options o) { return o.tied && orders_sums(o); }},
      {"pp", "--compressor", "one without intra_node=, or no --tied",
       [](Options o) { return o.tied && has_two_levels(o); }},
      {"pp", "--momentum-at", "--momentum-at server, or no --tied",
       [](Options o) { return o.tied && o.momentum > 0 && o.momentum_at == "worker"; }},
      {"pp", "--accumulate-policy", "sum-then-reduce",
       [](Options o) { return o.accumulate_policy != "sum-then-reduce"; }},
      {"pp", "--clip-worker", "--clip", [](Options o) { return o.clip_worker > 0; }},
      {"pp", "--zero", "--zero 0 or 1, or a schedule other than chimera, pipedream and 2bw",
       [](Options o) { return o.zero >= 2 && (o.parallel.pipes() > 1 || goes_without_flush(o)); }},
      {"pp", "--optimizer", "sgd, nesterov or adamw, or a schedule with a flush",
       [](Options o) { return goes_without_flush(o) && steps_by_norms(o); }},
      {"pp", "--accumulate", "--accumulate 1, or a schedule other than pipedream",
       [](Options o) {
         return o.accumulate > 1 && o.parallel.order.kind == PipelineOrder::Kind::kPipeDream;
       }},
      {"pp", "--clip", "a schedule with a flush",
       [](Options o) { return o.clip > 0 && goes_without_flush(o); }},
      {"pp", "--tied", "a schedule with a flush",
       [](Options o) { return o.tied && goes_without_flush(o); }},
      {"pp", "--precision", "fp32 or bf16, or a schedule with a flush",
       [](Options o) { return o.precision == "fp16" && goes_without_flush(o); }},
      {"pp", "--offload", "a schedule with a flush",
       [](Options o) { return o.offload != "none" && goes_without_flush(o); }},
      {"pp", "--measure-every", "a schedule with a flush",
       [](Options o) { return o.measure_every > 0 && goes_without_flush(o); }},
      {"pp", "--device", "--device cpu, or neither --memory nor --dry-run",
       [](Options o) { return is_on_device(o) && (o.memory || o.dry_run); }},
      {"pp", "--device", "--device cpu, or a schedule with a flush",
       [](Options o) { return is_on_device(o) && goes_without_flush(o); }},
      {"tp", "--optimizer", "sgd, nesterov, adamw or lamb", exchanges_by_itself},
      {"tp", "--algorithm", "--algorithm auto or canonical", orders_sums},
      {"tp", "--compressor", "one without intra_node=", has_two_levels},
      {"tp", "--clip-worker", "--clip, or --device cpu",
       [](Options o) { return is_on_device(o) && o.clip_worker > 0; }},
      // A boundary between stages has all samples of a micro-batch, and whole images.
      {"tp", "pp=", "pp=1, or megatron",
       [](Options o) { return o.parallel.has_stages() && divides_images(o); }},
      {"tp", "--device", "--device cpu, or megatron",
       [](Options o) { return is_on_device(o) && divides_images(o); }},
  };
  return all;
}

const Unserved* first_unserved(const TrainOptions& options) {
  for (const Unserved& one : unserved_when_divided()) {
    const bool divided = one.axis == "pp" ? options.parallel.has_stages() : options.parallel.tp > 1;
    if (divided && one.asked(options)) return &one;
  }
  return nullptr;
}

Status check_division_served(const TrainOptions& options) {
  const Unserved* const one = first_unserved(options);
  if (one == nullptr) return {};
  return {Code::kUnsupported, "train: " + std::string(one->flag) + " with --parallel " +
                                  to_string(options.parallel) + " (expected " +
                                  std::string(one->served) + ": docs/parallelism.md)"};
}

}  // namespace gradwire
