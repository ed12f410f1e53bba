// Synchronous elastic averaging: every worker keeps parameters of its own, all of them and one
// centre pull at each other every `period` steps, with momentum if asked for.
//
//   at steps t with t mod period = 0:  e_i = rho (W_i - C), and the exchange of their sum starts
//   u_i <- momentum u_i + dW_i(W_i - lr momentum u_i)
//   W_i <- W_i - lr (u_i + e_i);  C <- C + lr sum of e_i      (e_i = 0 between exchanges)
//
// With alpha in place of rho e_i is alpha (W_i - C) and is applied as it is, without lr
// (elastic.h). The centre is on every rank, bit for bit the same, because the sum is. What travels
// was known before the step's gradient, so the exchange hides behind it: an all-reduce of d
// elements in every period. period 1 without momentum is sync EASGD; with either it is EAMSGD.
// Source: You, Buluc, Demmel, SC 2017, section 5 (Sync EASGD); Zhang, Choromanska, LeCun, NeurIPS
// 2015, algorithm 2 (EAMSGD; its v is -lr u).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "adapters/trainer/modes/elastic.h"
#include "adapters/trainer/modes/mode.h"
#include "gradwire/communicator.h"
#include "gradwire/registry.h"

namespace gradwire {

struct ElasticOptions {
  double rho = 0;  // one of these two, as Elasticity says
  double alpha = 0;
  std::int64_t period = 1;
  std::string algorithm = "canonical";  // of the all-reduce; the left fold in rank order
  // Of the pulls: every rank then gathers all ranks' payloads, and applies its own pull as the
  // others decode it, so that what workers lose the centre wins, exactly as without.
  std::string compressor = "none";
  bool allow_unsafe = false;
  std::uint64_t seed = 0;
  // Of the asynchronous form: exchanges that its log keeps, the last ones.
  std::size_t log_most = 0;

  Elasticity elasticity() const { return {rho, alpha}; }
};

// kInvalidArgument names what is out of range.
Status check_elastic(const ModeOptions& options, const ElasticOptions& elastic);

// What happened, in order: for tests and traces.
enum class ElasticEvent : std::uint8_t { kExchangeStarts, kGradientReady, kExchangeEnds };

// Collective. w: this worker's parameters, equal on all ranks at first; centre: its start is w's;
// ModeStep::params is the centre, at steps that exchange, and after the last. Running statistics
// become the workers' mean there.
Status run_sync_easgd(Communicator& communicator, const Registry& registry, GradientSource& source,
                      const ModeOptions& options, const ElasticOptions& elastic, std::span<float> w,
                      std::span<float> centre, const OnModeStep& on_step,
                      const std::function<void(ElasticEvent)>& on_event = {});

}  // namespace gradwire
