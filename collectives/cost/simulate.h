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
#include <functional>
#include <vector>

#include "base/exact_time.h"
#include "gradwire/link_model.h"
#include "gradwire/schedule.h"
#include "gradwire/status.h"

namespace gradwire {

// Schedules as the simulator reads them: what takes time, each kind of rank once.

using ScheduleOf = std::function<Schedule(int rank)>;

// A message or a reduction; a kRecvReduce is both. Copies and kFinish take no time and are left
// out.
struct TimedStep {
  enum class Kind : std::uint8_t { kSend, kRecv, kReduce } kind = Kind::kSend;
  bool inside = false;        // both ends of the message are on one node
  std::int32_t place = 0;     // of the message's other end: an index into TimedJob::programs
  std::int32_t distance = 0;  // from the sender to the receiver
  std::int64_t elems = 0;
  std::int32_t partner = -1;  // the message's other end, among all steps of the job; -1: none
  bool is_message() const { return kind != Kind::kReduce; }
  friend bool operator==(const TimedStep&, const TimedStep&) = default;
};

// Of each round that takes time the sends, then the receives, then the reductions.
struct TimedProgram {
  std::vector<TimedStep> steps;
  std::vector<std::uint32_t> round_ends;  // indices into steps
  std::int64_t largest = 0;               // elements of its largest step
  bool divisible = true;                  // else it runs in one cut
  friend bool operator==(const TimedProgram&, const TimedProgram&) = default;
};

// One program for each rank, or for all ranks that do the same: rank r runs
// programs[r % programs.size()].
struct TimedJob {
  int size = 1;
  std::vector<TimedProgram> programs;
  std::vector<int> node_of;  // by rank; empty: no two ranks share a node
};

// use_symmetry: whether one rank may stand for others. `schedule_of` is then called for all ranks
// of up to 64, and for about 16 of more, spread over all. kUnsupported if the programs hold more
// than most_steps steps, kInternal if two ranks disagree about a message's length.
Result<TimedJob> compile(int size, const ScheduleOf& schedule_of, std::vector<int> node_of,
                         bool use_symmetry, std::int64_t most_steps);

// One rank's part, whose steps have no partner and no place.
TimedProgram program_of(const Schedule& schedule, const std::vector<int>& node_of);

// `nodes` nodes of consecutive ranks, alike up to one rank: piece(size, nodes, i).
std::vector<int> blocks_of_ranks(int size, int nodes);

inline constexpr std::int64_t kMostSteps = 12'000'000;

struct SimulationOptions {
  LinkModel links = {};
  std::int64_t elem_bytes = 4;
  // As the executor cuts (Segmentation, executor.h): so many bytes of a cell at most, so many cuts
  // in flight. 0 bytes: cells stay whole.
  std::int64_t segment_bytes = 0;
  int slots = 4;      // at least 1
  int most_cuts = 0;  // so many of the cuts are simulated, and no more; 0: all are
  // Cells that stay whole and may be cut are reduced in cuts of so many bytes while the rest
  // arrives. 0: after all has arrived.
  std::int64_t overlap_bytes = 0;
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

// kInternal when the schedules do not end.
Result<Simulation> simulate(const TimedJob& job, const SimulationOptions& options);

// No rank that runs this program whole is done earlier.
ExactTime least_time(const TimedProgram& program, const SimulationOptions& options);

}  // namespace gradwire
