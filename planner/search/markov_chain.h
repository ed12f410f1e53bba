// FlexFlow's search: a Markov chain over ways to divide operators.
#pragma once

#include "planner/search/placement_search.h"

namespace gradwire {

// Begins with strategies that are known: sample_divisions() (data parallelism over all devices and
// over parts of the cluster, down to one device), and cut_by_hand(). They are evaluations, of half
// of the budget at most. A chain's proposal gives one operator, drawn evenly, another way to be
// divided (operator_splits()), drawn evenly; one proposal of four gives it also to others along a
// random walk over readers and inputs, which goes on with probability 3/4. It is taken where it is
// not slower, and else with probability exp(-alpha * d), d the time that it is slower by, in
// hundredths of the best known strategy's time, alpha 0.05; what fits less is never taken. After a
// hundredth part of the budget, at most 1,000 proposals, another chain begins: three of four at the
// best so far, the fourth at one of the four best known strategies, by turns. So the result is
// never worse than any of them that the budget has room for.
// Source: Jia, Zaharia, Aiken, "Beyond data and model parallelism for deep neural networks", MLSys
// 2019, section 6 (Metropolis-Hastings from several initial strategies; their alpha has times in
// milliseconds). The walk is their program's, which spreads a division that is there, not a new
// one.
class MarkovChainSearch final : public PlacementSearch {
 public:
  Status search(SearchRecord& record) override;
};

}  // namespace gradwire
