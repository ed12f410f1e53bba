// What `auto` stands for.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "collectives/cost/model.h"

namespace gradwire {

// What an algorithm costs where ranks take turns: with fewer processors than ranks, or behind a
// switch that carries less than its ports. Then the work of all ranks together counts, if that
// takes longer than the simulation, in which nobody waits for a processor: contention * alpha * M /
// p for the starts of M messages, since a round in which every rank sends and receives once takes
// contention * alpha, and contention_beta * beta * B / p for their B bytes; the larger of the two
// and half of the smaller. If bytes contend, it is for processors, and additions take theirs too.
// All this only where all ranks are apart or all share a node, and for at most kMostContenders.
inline constexpr int kMostContenders = 64;
double expected_seconds(const CostQuestion& question, const Simulation& simulated);

// Whether the ranks take turns at so many starts that their messages' bytes and additions take no
// more than twice as long: then each round in which ranks wait for each other costs them a turn.
bool mostly_turns(const CostQuestion& question, const Simulation& simulated);

// Of the algorithms that are expected to take the least time, or 1 % more, the first that
// algorithms_of() names; of fewest rounds where it is mostly_turns(). The same on all ranks that
// ask the same question. counted: among those that take unequal rows.
std::string_view choose_algorithm(const CostQuestion& question, bool counted = false);

// The sizes from which another algorithm is chosen, ascending: the first entry has from_bytes ==
// min_bytes. Looked for among sizes of 4 binary digits, as AlgorithmChoice looks at them.
struct Crossover {
  std::int64_t from_bytes = 0;
  std::string_view algorithm;
};
std::vector<Crossover> crossovers(CostQuestion question, std::int64_t min_bytes,
                                  std::int64_t max_bytes);

// choose_algorithm(), asked for at every call of one group; used by one thread at a time. What was
// simulated is remembered for the process: many groups and many ranks that are threads ask the
// same. Choices are functions of the arguments of the constructor and of choose(), so ranks that
// agree about those agree about the algorithm.
class AlgorithmChoice {
 public:
  // segment_bytes: of the executor. node_of: one number for each rank, equal for ranks of one node;
  // none: no two ranks share one. Ranks of a node are taken to follow one another.
  AlgorithmChoice(int ranks, const LinkModel& links, std::int64_t segment_bytes,
                  std::span<const int> node_of = {});

  // bytes: as in CostQuestion, looked at with 4 binary digits; equal on all ranks. counted: rows
  // may be unequal.
  std::string_view choose(OpKind collective, std::int64_t bytes, bool counted);
  // What the executor is best to cut the cells of the algorithm's schedule into, fewer than it does
  // by itself: a pipeline lives of more cuts than a ring. 0: as it does. Arguments and agreement as
  // above.
  std::int64_t segment_bytes(OpKind collective, std::int64_t bytes, std::string_view algorithm);

 private:
  CostQuestion question_;
  std::unordered_map<std::uint64_t, std::string_view> known_;
  std::map<std::tuple<OpKind, std::int64_t, std::string_view>, std::int64_t> segments_;
};

}  // namespace gradwire
