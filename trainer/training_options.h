// How one rank trains.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/mesh.h"
#include "gradwire/status.h"
#include "trainer/data/data_set.h"
#include "trainer/data/order.h"
#include "trainer/layer_peers.h"
#include "trainer/model_share.h"
#include "trainer/optimizers/lr_schedule.h"
#include "trainer/optimizers/optimizer.h"
#include "trainer/precision.h"
#include "trainer/step/compute_parameters.h"
#include "trainer/step/loss_scale.h"
#include "trainer/strategy/demands.h"

namespace gradwire {

// Where momentum is applied. g is a worker's gradient, u a worker's own.
enum class MomentumAt : std::uint8_t {
  kServer,  // after aggregation, by the optimizer
  kWorker,  // before it: u <- momentum u + g, the exchange is given u; the optimizer has none (sgd
            // only)
};

struct TrainingOptions {
  std::int64_t batch = 128;  // samples per step, over all ranks
  int rank = 0;              // the replica, a coordinate of dp
  int ranks = 1;             // replicas: dp
  // Micro-batches per rank and step. They stand for workers: one rank with accumulate N computes,
  // bit for bit, what N ranks compute whose exchange folds in rank order and multiplies once by
  // 1/N.
  int accumulate = 1;
  std::optional<std::int64_t> steps;  // 0 is legal; not given: `epochs` epochs
  std::int64_t epochs = 1;
  double lr = 0.05;
  double momentum = 0.9;  // of sgd and nesterov, in place of optimizer.momentum
  MomentumAt momentum_at = MomentumAt::kServer;
  OptimizerOptions optimizer;  // not looked at under Demands::own_optimizer
  LrSchedule schedule;
  // Global norms, 0 for none: of the gradient that the optimizer is given, and of a worker's before
  // anybody else sees it (and before its momentum).
  double clip = 0;
  double clip_worker = 0;
  Precision precision = Precision::kF32;
  // false, in 16 bits alone: gradients of several micro-batches are added up in them, and nothing
  // of a gradient is kept in fp32. No clip_worker, no momentum at the worker; under strategies that
  // take gradients in 16 bits.
  bool main_gradients = true;
  LossScaleOptions loss_scale;
  std::uint64_t seed = 0;  // of the initial parameters and of the data order
  Shuffle shuffle = Shuffle::kEpoch;
  // What backward computes again instead of keeping it, as recompute_segments() says.
  std::string recompute = "none";
  // Where memory is counted. With an offload what belongs to the host lies in places.host, of the
  // host or of pinned memory. Where places.device is of a CUDA device, all else of the trainer's
  // tensors is there, and so is its work.
  MemoryPlaces places = {};
  Offload offload = Offload::kNone;
  std::int64_t offload_chunk =
      1 << 18;  // elements that are copied, or widened, and updated together
  // The host updates what it holds while the rest of the gradient is on its way; with clip, and
  // under strategies that cannot tell what has arrived, after the last one. The same bits.
  bool offload_overlap = true;
  // false: parameters stay zero, for who wants to see whether a run can be made, and makes none.
  bool draws = true;
  // Without a flush: behind so many steps nothing is under way either, for checkpoints; 0: behind
  // evaluations and the last step alone.
  std::int64_t drain_every = 0;
  std::int64_t eval_every = 0;  // steps between evaluations; 0: after the last step only

  // Where this rank holds a part of the model: who holds what, borrowed for the trainer's life.
  // Norms, clipping and lamb then count each element once over Scope::kModel. null: all is here.
  const ModelShare* share = nullptr;
  // The ranks that share this rank's tensors, where the model is a part of such
  // (Model::shared_by()); borrowed likewise.
  LayerPeers* peers = nullptr;

  BatchShares shares() const { return {ranks, accumulate}; }
};

// kInvalidArgument names the option, the value seen and the value wanted.
Status check_training_options(const TrainingOptions& options, const Demands& demands,
                              const DataSet& data);

}  // namespace gradwire
