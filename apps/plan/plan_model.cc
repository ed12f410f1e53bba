#include "apps/plan/plan_model.h"

#include <algorithm>

#include "trainer/models.h"

namespace gradwire {

Result<Model<float>> plan_model(const PlanQuestion& q, const TensorShare& share) {
  ModelOptions options{q.model};
  options.share = share;
  if (q.model != "gpt") {
    options.hidden = q.hidden;
    return make_model<float>(options, q.image, q.classes);
  }
  const TransformerShape& shape = q.transformer;
  options.width = shape.width;
  options.layers = shape.layers;
  options.heads = shape.heads;
  options.tied = has_flush(q);  // elsewhere ends are not tied
  return make_model<float>(options, {shape.sequence, 1, 1},
                           std::max<std::int64_t>(shape.vocabulary, 1));
}

Result<RunMemoryQuestion> plan_run(const PlanQuestion& q, int stage) {
  GW_ASSIGN(const MemoryQuestion asked, memory_question(q, stage));
  RunMemoryQuestion run;
  run.micro_batch = q.transformer.batch;
  run.accumulate = static_cast<int>(q.accumulate) / q.parallel.pipes();
  run.recompute = q.recompute;
  GW_ASSIGN(run.precision, parse_precision(q.precision));
  run.optimizer = q.optimizer == "momentum" ? "sgd" : q.optimizer;
  if (q.optimizer == "sgd") run.momentum = 0;
  run.stage = stage;
  run.ranks = static_cast<int>(replicas(q));
  run.main_gradients = !q.no_main_grads;
  run.whole_gradients = asked.whole_gradients;
  run.labels = q.model == "gpt" ? q.transformer.sequence : 1;
  return run;
}

}  // namespace gradwire
