// The communicators of a rank's groups on a mesh.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/mesh.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"

namespace gradwire {

// One per rank, used from the thread that trains.
class MeshGroups {
 public:
  // Sends nothing. `world` is borrowed for the object's life. kInvalidArgument, with the products,
  // where the sizes do not fit it.
  static Result<MeshGroups> create(Communicator& world, const MeshSizes& sizes);
  // Of ranks that each hold the whole model.
  static MeshGroups of_replicas(Communicator& world) { return {world, {.dp = world.size()}}; }

  // The group of a scope that this rank is in, its ranks as group_ranks() has them; lent for the
  // object's life. Groups of equal members in one order are one communicator, and a group of all
  // ranks in their order is the world itself, so that replicas alone exchange what a job without a
  // mesh does. The first call for other members makes the group: collective over those, in the same
  // order on all of them. Errors: those of Communicator::create_group(); kInvalidArgument for a
  // rank that is in no group of the scope (embed, between the first and the last stage).
  Result<Communicator*> group(MeshScope scope);

  const MeshSizes& sizes() const { return sizes_; }
  MeshCoordinates coordinates() const { return coordinates_of(sizes_, world_->rank()); }

 private:
  MeshGroups(Communicator& world, const MeshSizes& sizes) : world_(&world), sizes_(sizes) {}

  Communicator* world_;
  MeshSizes sizes_;
  std::map<std::vector<int>, std::unique_ptr<Communicator>> made_;  // by members
};

}  // namespace gradwire
