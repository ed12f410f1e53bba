// Ranks that do the same, turned: in a ring on equal chunks rank r + 1 does what rank r does with
// every peer moved up by one, so all clocks agree and one rank stands for all. On nodes of b ranks
// the links repeat every b ranks, so b of them stand for all. Whether schedules are so is looked
// at, not believed: programs are compared.
#include "collectives/cost/simulate_program.h"

#include <algorithm>

#include "base/text.h"

namespace gradwire {
namespace {

constexpr int kAllCompared = 1024;  // ranks; of more, kSpread are compared
constexpr int kSpread = 512;

TimedProgram program_of(const Schedule& schedule) {
  using Op = Step::Op;
  TimedProgram program;
  program.divisible = schedule.divisible;
  program.round_ends.reserve(schedule.rounds.size());
  for (const Round& round : schedule.rounds) {
    for (const Step& step : round) {
      if (step.op == Op::kCopy || step.op == Op::kFinish) continue;
      TimedStep timed;
      timed.kind = step.op == Op::kSend         ? TimedStep::Kind::kSend
                   : step.op == Op::kRecvCopy   ? TimedStep::Kind::kRecv
                   : step.op == Op::kRecvReduce ? TimedStep::Kind::kRecvReduce
                                                : TimedStep::Kind::kReduce;
      timed.elems = step.op == Op::kSend ? step.from.range.size() : step.to.range.size();
      if (step.peer >= 0) {
        timed.offset = (step.peer - schedule.rank + schedule.size) % schedule.size;
      }
      program.largest = std::max(program.largest, timed.elems);
      program.steps.push_back(timed);
    }
    program.round_ends.push_back(static_cast<std::uint32_t>(program.steps.size()));
  }
  return program;
}

// After how many ranks the links repeat; `size` if they do not.
int period_of_links(int size, const std::vector<int>& node_of) {
  if (node_of.empty()) return 1;
  const auto node = [&](int r) { return node_of[static_cast<std::size_t>(r)]; };
  int period = 1;
  while (period < size && node(period) == node(0)) ++period;
  if (period == size) return 1;  // one node
  if (size % period != 0) return size;
  for (int r = 0; r < size; ++r) {
    if (node(r) != node(0) + r / period) return size;
  }
  return period;
}

// The programs of the first `period` ranks, if they are everybody's; else none.
std::vector<TimedProgram> shared_programs(int size, int period, const ScheduleOf& schedule_of) {
  std::vector<TimedProgram> programs;
  for (int r = 0; r < period; ++r) programs.push_back(program_of(schedule_of(r)));
  // An odd stride, so that every residue is met.
  const int stride = size <= kAllCompared ? 1 : (size / kSpread) | 1;
  for (int r = size - 1; r >= period; r -= stride) {
    if (program_of(schedule_of(r)) != programs[static_cast<std::size_t>(r % period)]) return {};
  }
  return programs;
}

}  // namespace

bool TimedJob::same_node(int a, int b) const {
  return !node_of.empty() &&
         node_of[static_cast<std::size_t>(a)] == node_of[static_cast<std::size_t>(b)];
}

Result<TimedJob> compile(int size, const ScheduleOf& schedule_of,
                         const SimulationOptions& options) {
  TimedJob job;
  job.size = size;
  job.node_of = options.node_of;
  const int period = period_of_links(size, options.node_of);
  if (options.use_symmetry && period <= size / 2) {
    job.programs = shared_programs(size, period, schedule_of);
    if (!job.programs.empty()) return job;
  }
  std::int64_t steps = 0;
  for (int r = 0; r < size; ++r) {
    job.programs.push_back(program_of(schedule_of(r)));
    steps += static_cast<std::int64_t>(job.programs.back().steps.size());
    if (steps > options.most_steps) {
      return Status(Code::kUnsupported,
                    format("simulate: more than %lld steps on %d ranks, the most for ranks that "
                           "differ; a number of elements that is a multiple of the ranks makes "
                           "most algorithms alike on all",
                           static_cast<long long>(options.most_steps), size));
    }
  }
  return job;
}

std::vector<int> blocks_of_ranks(int size, int nodes) {
  std::vector<int> node_of(static_cast<std::size_t>(size));
  for (int node = 0; node < nodes; ++node) {
    const Range block = piece(size, nodes, node);
    for (std::int64_t r = block.begin; r < block.end; ++r) {
      node_of[static_cast<std::size_t>(r)] = node;
    }
  }
  return node_of;
}

}  // namespace gradwire
