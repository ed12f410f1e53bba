// FlexFlow's search: a Markov chain over ways to divide operators.
#pragma once

#include "planner/search/placement_search.h"

namespace gradwire {

// Starts from pure data parallelism. A proposal gives one operator, drawn evenly, another way to be
// divided (operator_splits()), drawn evenly; one proposal of four gives it also to others along a
// random walk over readers and inputs, which goes on with probability 3/4. It is taken where it is
// not slower, and else with probability exp(-alpha * d), d the time that it is slower by, in
// hundredths of data parallelism's time, alpha 0.05; what fits less is never taken. After every
// hundredth part of the budget, at most 1,000 proposals, the chain starts again from the best. So
// the result is never worse than data parallelism.
// Source: Jia, Zaharia, Aiken, "Beyond data and model parallelism for deep neural networks", MLSys
// 2019, section 6 (Metropolis-Hastings; their alpha has times in milliseconds). The walk is their
// program's, which spreads a division that is there, not a new one.
class MarkovChainSearch final : public PlacementSearch {
 public:
  Status search(SearchRecord& record) override;
};

}  // namespace gradwire
