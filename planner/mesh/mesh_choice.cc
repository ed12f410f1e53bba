#include "planner/mesh/mesh_choice.h"

#include "base/text.h"

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

std::string parallel_text(const MeshChoice& choice) {
  std::string text = format("dp=%d", choice.dp);
  if (choice.tp > 1) text += format(",tp=%d/%s", choice.tp, choice.layout.c_str());
  if (choice.pp > 1) text += format(",pp=%d/%s", choice.pp, choice.order.text().c_str());
  if (choice.zero > 0) text += format(",zero=%d", choice.zero);
  return text;
}

std::string to_string(const MeshChoice& choice) {
  std::string text = parallel_text(choice);
  text += format(" %dx%lld", choice.accumulate, static_cast<long long>(choice.micro_batch));
  if (choice.recompute != "none") text += " recompute=" + choice.recompute;
  if (choice.compressor != "none") text += " " + choice.compressor;
  return text;
}

}  // namespace gradwire
