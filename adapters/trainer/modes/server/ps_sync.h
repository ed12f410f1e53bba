// Synchronous parameter server: servers hold the model, workers compute, all in step.
//
//   round 1  every server sends its part of the model to every worker
//   round 2  every worker sends its gradient of that part to the server, which adds them up in
//            the order of workers, multiplies once by 1/workers and takes the optimizer's step
//
// 2 p d elements through a server of all d elements and p workers; with s servers 2 p d / s through
// each. Bit for bit one process that accumulates p micro-batches.
//
// Compressed: pushes with error feedback on the worker as the spec's ef key says; pulls are the
// difference between the model and what all workers have of it, which keeps what was not sent, so
// that it is error feedback by itself.
// Source: Li et al., OSDI 2014; Dean et al., "Large scale distributed deep networks", NeurIPS 2012.
// Differences: Gruntkowska, Tyurin, Richtarik, "EF21-P and friends", ICML 2023, algorithm 1.
#pragma once

#include <span>

#include "adapters/trainer/modes/mode.h"
#include "adapters/trainer/modes/server/server_layout.h"
#include "gradwire/communicator.h"
#include "gradwire/registry.h"

namespace gradwire {

struct SyncServerOptions {
  ServerOptions server = {};
  // u_i <- momentum u_i + g_i is pushed; else momentum is the servers' optimizer's.
  bool momentum_at_worker = false;
};

// Collective. params: equal on all ranks at first, and in the end. `source` is null on servers,
// unless the model has running statistics: every rank's follow all workers' samples then, as those
// of one process would.
// on_step is called on rank 0, a server, with its part of the model (all of it where it is alone;
// else empty).
Status run_ps_sync(Communicator& world, const Registry& registry, GradientSource* source,
                   const ParameterTable& table, const ModeOptions& options,
                   const SyncServerOptions& sync, std::span<float> params,
                   const OnModeStep& on_step);

}  // namespace gradwire
