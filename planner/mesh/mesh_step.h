// A step on a mesh under virtual time: lowered to tasks of the timeline, as schedules of pipelines
// and placed graphs are.
#pragma once

#include <cstdint>
#include <vector>

#include "gradwire/status.h"
#include "planner/mesh/mesh_choice.h"
#include "planner/mesh/mesh_costs.h"

namespace gradwire {

// What takes no time, to know what it costs that it does.
struct MeshWithout {
  bool data = false;      // exchanges among replicas, and of tied ends
  bool messages = false;  // between stages
  bool sums = false;      // among ranks that share tensors
};

// What had a rank of a kind of replicas, its ports or its queue of reductions, and when.
struct MeshSpan {
  enum class Kind : std::uint8_t {
    kForward,
    kBackward,
    kInput,
    kWeight,
    kMessage,
    kReduce,
    kGather,
    kCode,  // compression, and messages where the processor that computes sends them
    kUpdate
  };
  Kind kind = Kind::kForward;
  int replica = 0;  // of MeshCosts::replicas
  int rank = 0;     // of the pipeline; of a message the sender
  int stage = 0;
  int micro = -1;          // -1: of the step
  std::int64_t begin = 0;  // nanoseconds
  std::int64_t end = 0;
};

struct MeshStep {
  std::int64_t ticks = 0;            // nanoseconds of a step
  std::int64_t busy = 0;             // of the rank that computes longest: layers and update
  std::vector<MeshSpan> spans = {};  // of one step with a flush, or of several without
};

// One step; without a flush a step's share of several, from the middle of a run on. Replicas of
// one kind are folded into one.
//
//   rank         does its list of the schedule in order; an operation begins when what it reads has
//                arrived
//   message      begins when it has been made, has the sender's port out and the receiver's port
//                in, and arrives a latency later
//   reduction    of a bucket of gradients among replicas, as soon as all of these have them: behind
//                its first layer's part of the stage's last backward; a rank's run one after
//                another, beside its computations. Of a tied parameter behind the addition of both
//                ends
//   processor    encodes before a reduction and decodes behind it, in turn with computations, where
//                a codec was measured; sends and receives while a reduction or a message is under
//                way, in turn with them, where the links say that it does
//   update       of a rank's parameters, when all of its gradients are reduced and its operations
//                have ended
//   ZeRO         stages 1 and 2: parameters are gathered behind the stage's updates. Stage 3:
//                as MeshCosts says, in a pipeline before the stage's first operation; spans have
//                the gathers that layers wait for
//   no flush     a rank waits at each update for that stage's reductions
//
// Not modelled: ports that reductions and messages share. `costs` are of `links` (mesh_costs()).
// Errors as generate_pipeline().
Result<MeshStep> simulate_mesh(const MeshChoice& choice, const MeshLinks& links,
                               const MeshCosts& costs, const MeshWithout& without = {},
                               bool spans = false);

}  // namespace gradwire
