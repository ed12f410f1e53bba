// How ranks that are at different steps hear of each other's losses, and agree to drain before the
// next drain that all know of, where one of them is asked to end the training.
#pragma once

#include <cstdint>

#include "gradwire/status.h"
#include "trainer/step/step_averages.h"
#include "trainer/strategy/consensus.h"

namespace gradwire {

// From the thread that trains. Every few steps each rank sends what it knows and goes on; it reads
// what all sent so many steps later, when even the last of them has been there. That step has the
// same number on all ranks, and the drain is so far behind it as every rank can still make it.
class EarlyDrain {
 public:
  // Before each step, on all ranks. `known`: steps until the next drain, this one among them, as
  // the run's options have it. to_drain: StepGradientSource::steps_to_drain(), the same at every
  // call; 0: ranks meet in each step, and nothing is sent. Returns steps until the next drain now.
  // Errors: those of the consensus.
  Result<std::int64_t> steps_left(StepAverages& averages, Consensus& consensus, std::int64_t known,
                                  std::int64_t to_drain);

  // Steps between two questions: the last rank is behind the first one by fewer than to_drain.
  static std::int64_t period(std::int64_t to_drain) { return 4 * to_drain; }

 private:
  std::int64_t since_ = 0;    // the last drain
  std::int64_t ends_in_ = 0;  // steps, once it has been agreed; 0: it has not
};

}  // namespace gradwire
