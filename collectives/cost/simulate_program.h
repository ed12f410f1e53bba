// Schedules as the simulator reads them: small, relative to their rank, and each kind once.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/cost/simulate.h"

namespace gradwire {

// What takes time: messages and reductions. Copies and kFinish are left out.
struct TimedStep {
  enum class Kind : std::uint8_t { kSend, kRecv, kRecvReduce, kReduce } kind = Kind::kSend;
  std::int32_t offset = 0;  // of the peer: (peer - rank) mod size
  std::int64_t elems = 0;
  bool is_message() const { return kind != Kind::kReduce; }
  bool reduces() const { return kind == Kind::kReduce || kind == Kind::kRecvReduce; }
  friend bool operator==(const TimedStep&, const TimedStep&) = default;
};

struct TimedProgram {
  std::vector<TimedStep> steps;
  std::vector<std::uint32_t> round_ends;  // indices into steps
  std::int64_t largest = 0;               // elements of its largest step
  bool divisible = true;                  // else it runs in one cut
  friend bool operator==(const TimedProgram&, const TimedProgram&) = default;
};

// programs[c] is the program of rank c and of every rank r with r mod programs.size() == c. As many
// as ranks: each has its own.
struct TimedJob {
  int size = 1;
  std::vector<TimedProgram> programs;
  // Of a rank's copy: `rank` is any of the job.
  bool same_node(int a, int b) const;
  std::vector<int> node_of;  // empty: no two ranks share a node
};

Result<TimedJob> compile(int size, const ScheduleOf& schedule_of, const SimulationOptions& options);

}  // namespace gradwire
