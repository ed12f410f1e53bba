#include "apps/plan/plan_explained.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "apps/plan/plan_model.h"
#include "trainer/accounts/run_memory.h"

namespace gradwire {
namespace {

// "block12.mlp.fc" is "block*.mlp.fc"; names outside of blocks stay.
std::string place_in_block(const std::string& name) {
  const std::size_t dot = name.find('.');
  const auto digits = [&](std::size_t at) {
    return at < dot && std::isdigit(static_cast<unsigned char>(name[at])) != 0;
  };
  std::size_t begin = 0;
  while (begin < name.size() && !digits(begin)) ++begin;
  std::size_t end = begin;
  while (digits(end)) ++end;
  if (dot == std::string::npos || begin == end) return name;
  return name.substr(0, begin) + "*" + name.substr(end);
}

bool same_size(const LayerSize& a, const LayerSize& b) {
  return a.weights == b.weights && a.inputs == b.inputs && a.outputs == b.outputs;
}

std::vector<ExplainedLayer> explained_layers(const std::vector<ModelProduct>& products,
                                             std::int64_t samples) {
  std::vector<ExplainedLayer> layers;
  for (const ModelProduct& product : products) {
    if (product.size.weights == 0) continue;
    const std::string place = place_in_block(product.name);
    const auto like = std::ranges::find_if(layers, [&](const ExplainedLayer& layer) {
      return place_in_block(layer.product.name) == place &&
             same_size(layer.product.size, product.size);
    });
    if (like != layers.end()) {
      ++like->count;
    } else {
      layers.push_back({product, 1, least_traffic(product.size, samples)});
    }
  }
  for (ExplainedLayer& layer : layers) {
    if (layer.count > 1) layer.product.name = place_in_block(layer.product.name);
  }
  return layers;
}

// Activations of a rank as a run keeps them.
Result<std::optional<double>> run_activations(const PlanQuestion& q, std::int64_t ranks,
                                              bool sequence) {
  const TransformerShape& shape = q.transformer;
  if (shape.vocabulary < ranks || (sequence && shape.sequence % ranks != 0)) {
    return std::optional<double>();
  }
  GW_ASSIGN(const Model<float> part,
            plan_model(q, {.ranks = static_cast<int>(ranks), .sequence = sequence}));
  GW_ASSIGN(const RunMemoryQuestion asked, plan_run(q, 0));
  GW_ASSIGN(const RunMemory memory, run_memory(part, asked));
  const auto place = static_cast<std::size_t>(MemoryClass::kActivations);
  return std::optional(static_cast<double>(memory.device[place]));
}

Result<ExplainedTensors> explained_tensors(const PlanQuestion& q, std::int64_t ranks) {
  constexpr double kWidth = 4;  // of an element that is sent
  GW_ASSIGN(const Recompute recompute, recompute_of(q.recompute));
  const TensorTraffic traffic = tensor_traffic(q.transformer, ranks);
  ExplainedTensors row;
  row.ranks = ranks;
  row.block_bytes = kWidth * traffic.blocks;
  row.end_bytes = kWidth * traffic.ends;
  row.published = activation_bytes(q.transformer, recompute, ranks);
  row.published_sequence = activation_bytes(q.transformer, recompute, ranks, true);
  GW_ASSIGN(row.run, run_activations(q, ranks, false));
  GW_ASSIGN(row.run_sequence, run_activations(q, ranks, true));
  return row;
}

}  // namespace

Result<PlanExplained> explain_plan(const PlanQuestion& q) {
  GW_ASSIGN(const Model<float> model, plan_model(q));
  const std::vector<ModelProduct> products = model_products(model);
  PlanExplained explained;
  explained.ranks = q.data_ranks * q.parallel.tp;
  explained.samples = q.transformer.batch * q.accumulate * q.data_ranks;
  explained.parameters = parameter_elems(model.parameters());
  explained.layers = explained_layers(products, explained.samples);
  explained.traffic = model_traffic(model, explained.samples);
  explained.work = work_by_kind(products);
  if (q.model != "gpt") return explained;
  for (const std::int64_t ranks : std::set<std::int64_t>{2, 4, 8, q.parallel.tp}) {
    if (ranks == 1 || q.transformer.heads % ranks != 0) continue;
    GW_ASSIGN(ExplainedTensors row, explained_tensors(q, ranks));
    explained.tensors.push_back(row);
  }
  return explained;
}

}  // namespace gradwire
