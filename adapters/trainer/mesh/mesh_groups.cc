#include "adapters/trainer/mesh/mesh_groups.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/text.h"

namespace gradwire {

Result<MeshGroups> MeshGroups::create(Communicator& world, const MeshSizes& sizes) {
  GW_TRY(check_mesh(sizes, world.size()));
  return MeshGroups(world, sizes);
}

Result<Communicator*> MeshGroups::group(MeshScope scope) {
  const std::vector<int> ranks = group_ranks(sizes_, scope, world_->rank());
  if (ranks.empty()) {
    return Status(
        Code::kInvalidArgument,
        format("mesh: rank %d is on stage %d of %d and in no group of scope %s (expected "
               "the first or the last stage)",
               world_->rank(), coordinates().pp, sizes_.pp, std::string(to_string(scope)).c_str()));
  }
  if (static_cast<int>(ranks.size()) == world_->size() && std::ranges::is_sorted(ranks)) {
    return world_;
  }
  if (const auto known = made_.find(ranks); known != made_.end()) return known->second.get();
  auto group = world_->create_group(ranks);
  if (!group.has_value()) {
    return group.error().with_context("mesh, scope " + std::string(to_string(scope)));
  }
  return made_.emplace(ranks, std::move(group).value()).first->second.get();
}

}  // namespace gradwire
