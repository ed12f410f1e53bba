// The data-parallel modes of `gradwire train` and their flags.
#pragma once

#include <cstdint>
#include <string>

#include "apps/flags.h"
#include "gradwire/status.h"

namespace gradwire {

struct TrainOptions;

struct ModeFlags {
  std::string name = "sync";
  std::int64_t servers = 1;              // ps-*: ranks 0 .. servers - 1
  std::string pull_compressor = "none";  // ps-*
  std::int64_t staleness = -1;           // ps-async: steps; -1: no bound
  bool staleness_lr = false;             // ps-async
  std::int64_t period = 1;               // ps-async, eamsgd: steps between exchanges
  double rho = 0;                        // elastic modes; 0: from moving_rate
  double alpha = 0;                      // elastic modes, in place of rho; 0: there is none
  double moving_rate = 0.9;              // elastic modes: rho = moving_rate / (workers lr)
  std::int64_t local_steps = 8;          // fedavg
  double participation = 1;              // fedavg: share of the ranks in a round
  bool asynchronous = false;             // eamsgd: workers on their own clocks, rank 0 the master
};

void add_mode_flags(Flags& flags, ModeFlags& mode);

// Flags that the mode has no use for, with what to do instead; takes the momentum of a mode that
// has none where no flag asked for it.
Status settle_mode(const Flags& flags, TrainOptions& options);

// How many of so many ranks compute gradients. kInvalidArgument where that is none.
Result<int> workers_among(const TrainOptions& options, int ranks);

}  // namespace gradwire
