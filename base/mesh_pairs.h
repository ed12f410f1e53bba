// Pipelines that go both ways (MeshSizes::both_ways): which of their ranks are replicas of which
// place.
#pragma once

#include <algorithm>

#include "base/mesh.h"
#include "base/text.h"
#include "gradwire/status.h"

namespace gradwire {

// The mesh of a job whose pipelines, of sizes.pp ranks each, go both ways. kInvalidArgument: an odd
// number of them.
inline Result<MeshSizes> mesh_both_ways(const MeshSizes& sizes) {
  if (sizes.pp % 2 != 0) {
    return Status(Code::kInvalidArgument,
                  format("pp=%d ranks of a pipeline that goes both ways (expected an even number)",
                         sizes.pp));
  }
  return MeshSizes{sizes.pp / 2, 2 * sizes.dp, sizes.tp, true};
}

// Of rank `rank` among a pipeline's `size`: its place on the axis.
constexpr int place_both_ways(int size, int rank) { return std::min(rank, size - 1 - rank); }

// The coordinates of dp that one pipeline of so many pipes stands for are consecutive: the one of
// pipe `pipe`, where `replica` is any of them.
constexpr int replica_of_pipe(int replica, int pipes, int pipe) {
  return replica - replica % pipes + pipe;
}

}  // namespace gradwire
