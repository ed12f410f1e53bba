#include "apps/plan/plan_model.h"

#include <algorithm>

#include "apps/flags.h"
#include "base/text.h"
#include "trainer/models.h"

namespace gradwire {

Result<SampleShape> parse_image_size(const std::string& text) {
  constexpr std::int64_t kMost = 1 << 16;
  constexpr std::int64_t kMostElems = 1 << 30;  // what is counted of a model of them fits 64 bits
  std::vector<std::int64_t> sizes;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find('x', begin), text.size());
    sizes.push_back(to_int(text.substr(begin, end - begin)).value_or(0));
    begin = end + 1;
  }
  const auto possible = [](std::int64_t size) { return size >= 1 && size <= kMost; };
  if (sizes.size() == 3 && std::ranges::all_of(sizes, possible)) {
    const SampleShape image{sizes[0], sizes[1], sizes[2]};
    if (image.elems() <= kMostElems) return image;
  }
  return bad_value(text, "three sizes from 1 to 65536, such as 3x224x224, 2^30 elements at most");
}

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

std::vector<std::pair<std::string, std::string>> model_flags_of_train(const PlanQuestion& q,
                                                                      bool tied) {
  std::vector<std::pair<std::string, std::string>> flags{{"model", "\"" + q.model + "\""}};
  if (q.model == "gpt") {
    flags.emplace_back("layers", std::to_string(q.transformer.layers));
    flags.emplace_back("width", std::to_string(q.transformer.width));
    flags.emplace_back("heads", std::to_string(q.transformer.heads));
    flags.emplace_back("context", std::to_string(q.transformer.sequence));
    flags.emplace_back("tied", tied ? "true" : "false");
  } else if (q.model == "mlp") {
    std::string widths;
    for (const std::int64_t width : q.hidden) {
      widths += (widths.empty() ? "" : ",") + std::to_string(width);
    }
    flags.emplace_back("hidden", "\"" + widths + "\"");
  }
  return flags;
}

}  // namespace gradwire
