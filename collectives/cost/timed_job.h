// Schedules as the simulator reads them: what takes time, each kind of rank once.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gradwire/schedule.h"
#include "gradwire/status.h"

namespace gradwire {

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

}  // namespace gradwire
