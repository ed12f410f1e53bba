#include "planner/search/metis_cut.h"

#include <utility>

#include "planner/search/draws.h"
#include "planner/search/have_metis.h"

namespace gradwire {

Status MetisPlacement::search(SearchRecord& record) {
  if constexpr (kHaveMetis) {
    constexpr int kSeeds = 8;
    const CutGraph cuts(record.cost().graph());
    const int devices = record.cost().cluster().devices();
    SearchDraws draws(record.budget().seed);
    std::vector<std::vector<int>> found;
    for (int number = 0; number < kSeeds; ++number) {
      constexpr int kEnd = 1 << 30;
      const auto seed = static_cast<std::uint64_t>(draws.below(kEnd));
      GW_ASSIGN(std::vector<int> parts, metis_parts(cuts, devices, seed));
      found.push_back(std::move(parts));
    }
    return try_cuts(cuts, std::move(found), record);
  }
  return {Code::kUnsupported,
          "this build has no METIS (expected Debian's libmetis-dev where gradwire is built, or "
          "--method min-cut, which needs none)"};
}

}  // namespace gradwire
