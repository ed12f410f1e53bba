// Virtual time: runs all ranks' schedules of one operation as discrete events on a modelled
// network.
//
//   a message    starts when both its ends have reached the round that names it and a port of each
//                is free, keeps the sender's out-port and the receiver's in-port for gap * alpha +
//                n * beta, and has arrived alpha + n * beta after its start; both ends learn so
//                then
//   a port       carries one message at a time: of those whose other end is free, the one that has
//                been ready longest; sends of a round that became ready together go in the
//                schedule's order. Sending and receiving do not disturb one another
//   a round      ends when all its messages have arrived; then its reductions take gamma a byte,
//                one after another. Copies are free
//
// Every rank has a processor and links of its own: the model's contention is expected_seconds()'s.
// Times are exact (base/exact_time.h): where a closed form is exact the two are equal, not nearly
// equal.
#pragma once

#include <cstdint>
#include <vector>

#include "base/exact_time.h"
#include "collectives/cost/timed_job.h"
#include "gradwire/link_model.h"

namespace gradwire {

inline constexpr std::int64_t kMostSteps = 12'000'000;

struct SimulationOptions {
  LinkModel links = {};
  std::vector<int> node_of = {};  // by rank; empty: no two ranks share a node
  std::int64_t elem_bytes = 4;
  // As the executor cuts (Segmentation, executor.h): so many bytes of a cell at most, so many cuts
  // in flight. 0 bytes: cells stay whole.
  std::int64_t segment_bytes = 0;
  int slots = 4;      // at least 1
  int most_cuts = 0;  // so many of the cuts are simulated, and no more; 0: all are
  // Cells that stay whole and may be cut are reduced in cuts of so many bytes while the rest
  // arrives. 0: after all has arrived.
  std::int64_t overlap_bytes = 0;
  // Whether one rank may stand for others that do the same.
  bool use_symmetry = true;
  std::int64_t most_steps = kMostSteps;
};

struct Simulation {
  ExactTime time;                   // when the last rank is done
  int rounds = 0;                   // of the rank that has most
  std::int64_t wire_bytes_max = 0;  // message bytes of the rank that sends most
  std::int64_t node_bytes_max = 0;  // message bytes that leave the node that sends most
  std::int64_t all_messages = 0;    // of all ranks together, as if cells stayed whole
  std::int64_t all_sent = 0;        // bytes of those
  std::int64_t all_reduced = 0;     // bytes that are reduced into others
  std::int64_t steps = 0;           // that were simulated, once for all cuts
  int simulated_ranks = 0;          // fewer than the size where ranks stood for others
};

// kInternal when the schedules do not end or disagree about a message's length; kUnsupported when
// they hold more steps than are simulated one by one (most_steps) and are not symmetric.
Result<Simulation> simulate(int size, const ScheduleOf& schedule_of,
                            const SimulationOptions& options);

// The same for schedules that are compiled. options.node_of, use_symmetry and most_steps are not
// read.
Result<Simulation> simulate(const TimedJob& job, const SimulationOptions& options);

// No rank that runs this program whole is done earlier.
ExactTime least_time(const TimedProgram& program, const SimulationOptions& options);

}  // namespace gradwire
