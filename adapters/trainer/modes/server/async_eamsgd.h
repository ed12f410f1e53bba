// Asynchronous elastic averaging with momentum: a master keeps the centre, workers exchange with it
// every `period` steps of their own clock, whatever the others do.
//
//   worker, at steps t with t mod period = 0:  asks; gets C as it is; e = rho (W - C), sends e
//   worker, at every step:  u <- momentum u + dW(W - lr momentum u);  W <- W - lr (u + e)
//   master, per e:          under its lock  C <- C + lr e                  (e = 0 between
//   exchanges)
//
// e is of W as it was before the step. Between a worker's reading of C and its e's arrival other
// workers' may arrive: that is the algorithm, and what a worker loses the centre wins all the same,
// also when e travels compressed, because the worker applies it as the master decodes it. Two
// messages of d elements in a worker's period, all of them through the master.
// Source: Zhang, Choromanska, LeCun, "Deep learning with elastic averaging SGD", NeurIPS 2015,
// algorithms 1 and 2 (asynchronous EASGD and EAMSGD). Its alpha is lr rho here, or ElasticOptions::
// alpha itself, which then is applied without lr (elastic.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "adapters/trainer/modes/mode.h"
#include "adapters/trainer/modes/sync_easgd.h"
#include "gradwire/communicator.h"
#include "gradwire/registry.h"

namespace gradwire {

// One e that the master applied.
struct ElasticExchange {
  int worker = 0;
  std::int64_t step = 0;     // of that worker
  std::int64_t version = 0;  // how many had been applied when it got the centre
};

// Collective: rank 0 is the master, ranks 1 .. are workers; at least 2 ranks. w: this worker's
// parameters, equal on all ranks at first; not looked at on the master. centre: equal on all ranks
// at first and in the end. elastic.algorithm is not looked at. `source` is null on the master,
// unless the model has running statistics (the master's are the mean of what workers' were when
// they last asked) or there is a saver. on_step is called on the master, from any of its threads
// but one at a time, for each so many steps as there are workers. Returns the last elastic.log_most
// exchanges on the master, in their order, empty elsewhere: computing all of them again in that
// order gives the same bits. To save, all
// workers stop where each has done as many steps.
Result<std::vector<ElasticExchange>> run_async_eamsgd(
    Communicator& world, const Registry& registry, GradientSource* source,
    const ParameterTable& table, const ModeOptions& options, const ElasticOptions& elastic,
    std::span<float> w, std::span<float> centre, const OnModeStep& on_step);

}  // namespace gradwire
