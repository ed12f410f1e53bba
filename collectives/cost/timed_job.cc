// Compiles schedules for the simulator.

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "collectives/cost/simulate.h"
#include "collectives/schedules/schedules.h"

namespace gradwire {
namespace {

constexpr int kAllCompared = 64;  // ranks; of more, about kSpread are compared
constexpr int kSpread = 16;

// Ranks that do the same, moved. In a ring on equal chunks rank r + 1 does what rank r does, with
// every peer one further; in recursive doubling rank r's peers are those of rank 0, with the same
// binary digits turned over. So ranks are written in digits of some radices, from the innermost on,
// and two of them do the same if the digits of (peer - rank) are the same. With one place a rank
// stands for all; with b places, for those b, 2b, ... ranks further. Whether schedules are so is
// looked at, not believed: programs are compared.
struct Symmetry {
  std::vector<int> radices;  // their product is the number of ranks
  int places = 1;

  int distance(int from, int to) const {
    int digits = 0;
    int unit = 1;
    for (const int radix : radices) {
      digits += (to / unit % radix - from / unit % radix + radix) % radix * unit;
      unit *= radix;
    }
    return digits;
  }
};

bool share_node(const std::vector<int>& node_of, int a, int b) {
  return !node_of.empty() &&
         node_of[static_cast<std::size_t>(a)] == node_of[static_cast<std::size_t>(b)];
}

TimedProgram program_under(const Symmetry& symmetry, const Schedule& schedule,
                           const std::vector<int>& node_of) {
  using Op = Step::Op;
  using Kind = TimedStep::Kind;
  TimedProgram program;
  program.divisible = schedule.divisible;
  program.round_ends.reserve(schedule.rounds.size());
  const auto add = [&](const Step& step, Kind kind) {
    TimedStep timed;
    timed.kind = kind;
    timed.elems = kind == Kind::kSend ? step.from.range.size() : step.to.range.size();
    if (kind != Kind::kReduce) {
      timed.inside = share_node(node_of, schedule.rank, step.peer);
      timed.place = step.peer % symmetry.places;
      timed.distance = kind == Kind::kSend ? symmetry.distance(schedule.rank, step.peer)
                                           : symmetry.distance(step.peer, schedule.rank);
    }
    program.largest = std::max(program.largest, timed.elems);
    program.steps.push_back(timed);
  };
  for (const Round& round : schedule.rounds) {
    for (const Step& step : round) {
      if (step.op == Op::kSend) add(step, Kind::kSend);
    }
    for (const Step& step : round) {
      if (step.op == Op::kRecvCopy || step.op == Op::kRecvReduce) add(step, Kind::kRecv);
    }
    for (const Step& step : round) {
      if (step.op == Op::kReduce || step.op == Op::kRecvReduce) add(step, Kind::kReduce);
    }
    const auto end = static_cast<std::uint32_t>(program.steps.size());
    const bool takes_time = end > (program.round_ends.empty() ? 0 : program.round_ends.back());
    if (takes_time) program.round_ends.push_back(end);
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

// Under each of them the links are the same for ranks that may do the same.
std::vector<Symmetry> symmetries(int size, const std::vector<int>& node_of) {
  const int period = period_of_links(size, node_of);
  if (period > size / 2) return {};
  std::vector<Symmetry> found{{{size}, period}};
  if (period > 1) found.push_back({{period, size / period}, 1});
  Symmetry primes{prime_factors(period), 1};
  for (const int factor : prime_factors(size / period)) primes.radices.push_back(factor);
  if (primes.radices.size() > 1) found.push_back(std::move(primes));
  return found;
}

Status too_many(std::int64_t most_steps, int size) {
  return {Code::kUnsupported,
          format("simulate: more than %lld steps on %d ranks, the most for ranks that differ; a "
                 "number of elements that is a multiple of the ranks makes most algorithms alike "
                 "on all",
                 static_cast<long long>(most_steps), size)};
}

// kUnsupported as well if ranks are not alike under the symmetry.
Status compile_under(const Symmetry& symmetry, const ScheduleOf& schedule_of,
                     std::int64_t most_steps, TimedJob& job) {
  const auto program = [&](int rank) {
    return program_under(symmetry, schedule_of(rank), job.node_of);
  };
  job.programs.clear();
  std::int64_t steps = 0;
  for (int r = 0; r < symmetry.places; ++r) {
    job.programs.push_back(program(r));
    steps += static_cast<std::int64_t>(job.programs.back().steps.size());
    if (steps > most_steps) return too_many(most_steps, job.size);
  }
  // An odd stride, so that every residue is met.
  const int stride = job.size <= kAllCompared ? 1 : (job.size / kSpread) | 1;
  for (int r = job.size - 1; r >= symmetry.places; r -= stride) {
    if (program(r) != job.programs[static_cast<std::size_t>(r % symmetry.places)]) {
      return {Code::kUnsupported, "simulate: ranks differ"};
    }
  }
  return {};
}

// One end of a message: messages of one sender and distance meet in the order of the steps.
struct End {
  std::int64_t key;
  std::int32_t step;  // among all of the job
  TimedStep* at;
};

Status pair_ends(TimedJob& job) {
  std::vector<End> sends;
  std::vector<End> receives;
  std::int32_t number = 0;
  for (std::size_t place = 0; place < job.programs.size(); ++place) {
    for (TimedStep& step : job.programs[place].steps) {
      const std::int32_t own = number++;
      if (!step.is_message()) continue;
      const bool send = step.kind == TimedStep::Kind::kSend;
      const std::int64_t sender = send ? static_cast<std::int64_t>(place) : step.place;
      (send ? sends : receives).push_back({sender * job.size + step.distance, own, &step});
    }
  }
  const auto before = [](const End& a, const End& b) {
    return a.key != b.key ? a.key < b.key : a.step < b.step;
  };
  std::ranges::sort(sends, before);
  std::ranges::sort(receives, before);
  for (auto send = sends.begin(), receive = receives.begin();
       send != sends.end() && receive != receives.end();) {
    if (send->key != receive->key) {
      send->key < receive->key ? ++send : ++receive;
      continue;
    }
    if (send->at->elems != receive->at->elems) {
      return {Code::kInternal,
              format("simulate: rank %d sends %lld elements where rank %d receives %lld",
                     receive->at->place, static_cast<long long>(send->at->elems), send->at->place,
                     static_cast<long long>(receive->at->elems))};
    }
    send->at->partner = receive->step;
    receive->at->partner = send->step;
    ++send, ++receive;
  }
  return {};
}

}  // namespace

TimedProgram program_of(const Schedule& schedule, const std::vector<int>& node_of) {
  return program_under({{schedule.size}, schedule.size}, schedule, node_of);
}

Result<TimedJob> compile(int size, const ScheduleOf& schedule_of, std::vector<int> node_of,
                         bool use_symmetry, std::int64_t most_steps) {
  TimedJob job{.size = size, .programs = {}, .node_of = std::move(node_of)};
  std::vector<Symmetry> tried;
  if (use_symmetry) tried = symmetries(size, job.node_of);
  tried.push_back({{size}, size});
  Status status;
  for (const Symmetry& symmetry : tried) {
    status = compile_under(symmetry, schedule_of, most_steps, job);
    if (status.ok()) break;
  }
  GW_TRY(status);
  GW_TRY(pair_ends(job));
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
