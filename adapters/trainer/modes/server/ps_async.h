// Asynchronous parameter server: each worker pulls, computes and pushes at its own pace.
//
//   worker, over and over:  pull x;  `period` times: g at its copy, copy <- copy - lr g
//                           push the sum of those g
//   server, per push:       under its lock  x <- the optimizer's step along the sum
//                           then answer with the model, once the worker is not too far ahead
//
// What a gradient was computed at is known by versions; staleness is how many pushes came in
// between. Bounded staleness (staleness_gate.h) holds fast workers back; `damped` divides the rate
// by the staleness (parameter_shard.h). A period above 1 is Downpour SGD. On a server one thread
// per worker waits for that worker's messages; the lock lets one push in at a time.
//
// Compressed: as in ps_sync.h, but every worker has a copy of the model of its own, which the
// server knows.
// Source: Dean et al., "Large scale distributed deep networks", NeurIPS 2012, algorithm 7.1;
// Li et al., OSDI 2014.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "adapters/trainer/modes/mode.h"
#include "adapters/trainer/modes/server/parameter_shard.h"
#include "adapters/trainer/modes/server/server_layout.h"
#include "gradwire/communicator.h"
#include "gradwire/registry.h"

namespace gradwire {

struct AsyncServerOptions {
  ServerOptions server = {};
  std::optional<std::int64_t> staleness = {};  // bound in steps; nullopt: none
  bool damped = false;
  std::int64_t period = 1;   // local steps between pushes
  std::size_t log_most = 0;  // pushes that a server's log keeps, the last ones
};

struct AsyncOutcome {
  std::vector<Application> log;  // of this server, the last ones in order; empty on workers
  PushCounts counts = {};        // of all
  int overlaps = 0;              // pushes that were inside the lock together
  std::int64_t most_staleness() const { return counts.most_staleness; }
  double mean_staleness() const;  // 0 of no push
  std::int64_t most_lead() const { return counts.most_lead; }
};

// Collective. params: rank 0's are taken at first (every worker's first pull is the whole model),
// and are equal on all ranks in the end. `source` is null on servers, unless the model has running
// statistics: rank 0's are the mean of what workers' were at their last pushes. To save, all
// workers stop where each has done as many steps, and all of these are applied; they go on from the
// whole model. on_step is called on rank 0, a server, for each so many steps as there are workers,
// with the model where it is the only server.
Result<AsyncOutcome> run_ps_async(Communicator& world, const Registry& registry,
                                  GradientSource* source, const ParameterTable& table,
                                  const ModeOptions& options, const AsyncServerOptions& async,
                                  std::span<float> params, const OnModeStep& on_step);

}  // namespace gradwire
