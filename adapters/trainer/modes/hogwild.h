// Hogwild: threads that train one set of parameters with no lock at all.
//
//   each thread, over and over:  reads all parameters, one by one, as others write them
//                                computes a gradient there
//                                x_j <- x_j - lr g_j for every j with g_j != 0
//
// Reads and writes of single elements are atomic (relaxed), the two together are not: of two
// threads that change an element at the same moment one change may be lost. That is the algorithm,
// and where gradients are sparse it is rare. One thread alone is plain SGD, bit for bit.
// Source: Niu, Recht, Re, Wright, "Hogwild!: a lock-free approach to parallelizing stochastic
// gradient descent", NeurIPS 2011, algorithm 1.
#pragma once

#include <span>
#include <vector>

#include "adapters/trainer/modes/mode.h"

namespace gradwire {

// x_j <- x_j - lr d_j where d_j is not 0: a relaxed load and a relaxed store, no read-modify-write.
void hogwild_descend(std::span<float> shared, std::span<const float> d, float lr);
// Relaxed loads.
void hogwild_read(std::span<float> shared, std::span<float> out);

// Runs sources.size() threads, thread i with sources[i]; `params` is shared by them until the call
// returns. A step's on_step comes once as many steps as threads are done, from any thread, one at a
// time, with a copy of the parameters as they then are. Momentum, if any, is each thread's own. The
// first error ends all threads. Running statistics are shared as parameters are: `running` is their
// start, what on_step may look at, and in the end what they are; empty where there are none. To
// save, all threads stop where each has done as many steps.
Status run_hogwild(std::span<GradientSource* const> sources, const ModeOptions& options,
                   std::span<float> params, std::span<float> running, const OnModeStep& on_step);

}  // namespace gradwire
