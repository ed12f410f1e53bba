// Original elastic averaging: a master and its workers, one worker at a time, round robin.
//
//   for t = 0 .. T - 1, with j = t mod G:
//     1  the master sends the centre C to worker j
//     2  worker j computes dW_j at its own W_j
//     3  the master gets W_j as it was before the update
//     4  worker j: W_j <- W_j - lr (dW_j + rho (W_j - C));  master: C <- C + lr rho (W_j - C)
//        (with alpha in place of rho: as elastic.h says)
//
// Two messages of d elements a turn, and nothing overlaps: G turns take G (Tc + 2 alpha + 2 d
// beta). The baseline that synchronous elastic averaging is measured against. Source: You, Buluc,
// Demmel, "Scaling deep learning on GPU and Knights Landing clusters", SC 2017, algorithm 1.
#pragma once

#include <span>
#include <vector>

#include "adapters/trainer/modes/elastic.h"
#include "adapters/trainer/modes/mode.h"
#include "gradwire/communicator.h"

namespace gradwire {

// Collective: rank 0 is the master, ranks 1 .. G are workers, options.steps turns of each; at least
// 2 ranks. `params`: equal on all ranks at first; in the end the master's is the centre, worker j's
// is W_j. on_step is called on the master, once all workers have had a turn. `source` is null on
// the master, unless the model has running statistics (the master's are the mean of the workers'
// then) or there is a saver, which knows tensors by their names. `turns`: appended on the master,
// which worker had each turn; may be null.
Status run_easgd(Communicator& communicator, GradientSource* source, const ModeOptions& options,
                 const Elasticity& elasticity, std::span<float> params, const OnModeStep& on_step,
                 std::vector<int>* turns = nullptr);

}  // namespace gradwire
