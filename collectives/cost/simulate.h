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
// This is the model in which the closed forms of cost_model.h are stated, and times are exact
// (base/exact_time.h), so where a closed form is exact the two are equal, not nearly equal.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/exact_time.h"
#include "gradwire/link_model.h"
#include "gradwire/schedule.h"
#include "gradwire/status.h"

namespace gradwire {

inline constexpr std::int64_t kMostSteps = 12'000'000;
inline constexpr int kMostSimulatedSlots = 65536;  // of SimulationOptions

struct SimulationOptions {
  LinkModel links = {};
  std::vector<int> node_of = {};  // by rank; empty: no two ranks share a node
  std::int64_t elem_bytes = 4;
  // As the executor cuts (Segmentation, executor.h): so many bytes of a cell at most, so many cuts
  // in flight. 0 bytes: cells stay whole.
  std::int64_t segment_bytes = 0;
  int slots = 4;  // 1 to kMostSimulatedSlots
  // Whether one rank may stand for others that do the same, turned by whole nodes.
  bool use_symmetry = true;
  std::int64_t most_steps = kMostSteps;
};

struct Simulation {
  ExactTime time;                   // when the last rank is done
  int rounds = 0;                   // of the rank that has most
  std::int64_t wire_bytes_max = 0;  // message bytes of the rank that sends most
  std::int64_t node_bytes_max = 0;  // message bytes that leave the node that sends most
  std::int64_t steps = 0;           // that were simulated, once for all cuts
  int simulated_ranks = 0;          // fewer than the size where ranks stood for others
};

using ScheduleOf = std::function<Schedule(int rank)>;

// `schedule_of` is called for every rank at least once, on more than 1024 ranks and under symmetry
// for 512 of them spread over all. kInternal when the schedules do not end or disagree about a
// message's length; kUnsupported when they hold more steps than are simulated one by one
// (most_steps) and are not symmetric.
Result<Simulation> simulate(int size, const ScheduleOf& schedule_of,
                            const SimulationOptions& options);

// `nodes` nodes of consecutive ranks, alike up to one rank: piece(size, nodes, i).
std::vector<int> blocks_of_ranks(int size, int nodes);

}  // namespace gradwire
