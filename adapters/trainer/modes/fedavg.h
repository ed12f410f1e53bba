// Local SGD, federated averaging: K steps of one's own, then a weighted average.
//
//   every rank:  x_i <- x;  K times: u_i <- momentum u_i + g_i(x_i), x_i <- x_i - lr u_i
//   together:    x <- x - sum over i of (n_i / n) (x - x_i)
//
// What travels is the change x - x_i, through an Aggregator: any compressor and error feedback that
// gradients may have. 1/K of the bytes of averaging gradients. u_i stays with its worker.
//
// Of a round a share C of the ranks may take part, drawn anew for each; i runs over those, and n is
// the sum of their n_i. The others compute nothing and keep u_i; where error feedback still owes
// something of theirs, it goes on travelling.
// Source: McMahan et al., "Communication-efficient learning of deep networks from decentralized
// data", AISTATS 2017, algorithm 1; Stich, "Local SGD converges fast and communicates little", ICLR
// 2019.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "adapters/trainer/modes/mode.h"
#include "gradwire/aggregator.h"
#include "gradwire/communicator.h"
#include "gradwire/registry.h"

namespace gradwire {

struct FedAvgOptions {
  std::int64_t local_steps = 8;  // K; a last round may be shorter
  double weight = 1;             // n_i: of this rank's change, above 0; they need not sum up to 1
  // C: max(1, round(C * ranks)) ranks take part in a round; above 0, at most 1.
  double participation = 1;
  std::uint64_t seed = 0;  // of who they are
  AggregatorOptions aggregator = {};
  // After each round: all that the aggregator has warned of so far. May be empty.
  std::function<void(const std::vector<std::string>&)> warn = {};
};

// Who takes part in round `round`, ascending: a function of its arguments alone.
std::vector<int> participants(std::uint64_t seed, std::int64_t round, int ranks,
                              double participation);

// Collective. params: equal on all ranks at first and after every round; ModeStep::params is the
// average, at rounds' last steps; ModeStep::loss that of the ranks that took part. Running
// statistics are averaged as parameters are.
Status run_fedavg(Communicator& communicator, const Registry& registry, GradientSource& source,
                  const ModeOptions& options, const FedAvgOptions& fedavg, std::span<float> params,
                  const OnModeStep& on_step);

}  // namespace gradwire
