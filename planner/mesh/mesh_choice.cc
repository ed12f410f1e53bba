#include "planner/mesh/mesh_choice.h"

#include "base/text.h"
#include "trainer/pipeline/cut_layers.h"

namespace gradwire {

std::vector<std::pair<int, int>> MeshChoice::stages_of(int rank) const {
  if (pp == 1) return {{0, 0}};
  if (pipes() == 2) return {{0, rank}, {1, pp - 1 - rank}};
  if (is_v(order.kind)) return {{0, rank}, {0, 2 * pp - 1 - rank}};
  std::vector<std::pair<int, int>> all;
  for (int chunk = 0; chunk < order.stages_a_rank(); ++chunk) {
    all.emplace_back(0, chunk * pp + rank);
  }
  return all;
}

namespace {

std::string text_of(const MeshChoice& choice, const std::string& order) {
  std::string text = format("dp=%d", choice.dp);
  if (choice.tp > 1) text += format(",tp=%d/%s", choice.tp, choice.layout.c_str());
  if (choice.pp > 1) text += format(",pp=%d/%s", choice.pp, order.c_str());
  if (choice.zero > 0) text += format(",zero=%d", choice.zero);
  return text;
}

// Behind the mesh.
std::string rest_of(const MeshChoice& choice) {
  std::string text =
      format(" %dx%lld", choice.accumulate, static_cast<long long>(choice.micro_batch));
  if (choice.recompute != "none") text += " recompute=" + choice.recompute;
  if (choice.compressor != "none") text += " " + choice.compressor;
  return text;
}

}  // namespace

std::string parallel_text(const MeshChoice& choice) { return text_of(choice, choice.order.text()); }

std::string brief_parallel_text(const MeshChoice& choice) {
  constexpr std::size_t kMost = 12;
  const std::vector<int>& layers = choice.order.layers;
  std::string order = choice.order.text();
  if (layers.size() <= kMost) return text_of(choice, order);
  const std::string all = layer_counts_text(layers);
  order.replace(order.find(all), all.size(),
                layer_counts_text({layers.data(), kMost / 2}) + format("+...+%d", layers.back()));
  return text_of(choice, order);
}

std::string to_string(const MeshChoice& choice) { return parallel_text(choice) + rest_of(choice); }

std::string brief_text(const MeshChoice& choice) {
  return brief_parallel_text(choice) + rest_of(choice);
}

}  // namespace gradwire
