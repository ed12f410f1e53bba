// What `auto` stands for, asked for at every call.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "collectives/cost/model.h"

namespace gradwire {

// Of one group; used by one thread at a time. Choices are functions of the arguments of the
// constructor and of choose(), so ranks that agree about those agree about the algorithm.
class AlgorithmChoice {
 public:
  // segment_bytes: of the executor.
  AlgorithmChoice(int ranks, const LinkModel& links, std::int64_t segment_bytes);

  // One number for each rank, equal for ranks of one node; none: no two ranks share one.
  void use_nodes(std::span<const int> node_of);
  // bytes: as in CostQuestion, looked at with 4 binary digits; equal on all ranks. counted: rows
  // may be unequal.
  std::string_view choose(OpKind collective, std::int64_t bytes, bool counted);
  // What the executor is best to cut the cells of the algorithm's schedule into, fewer than it does
  // by itself: a pipeline lives of more cuts than a ring. 0: as it does. Arguments and agreement as
  // above.
  std::int64_t segment_bytes(OpKind collective, std::int64_t bytes, std::string_view algorithm);
  const LinkModel& links() const { return question_.links; }

 private:
  CostQuestion question_;
  std::unordered_map<std::uint64_t, std::string_view> known_;
  std::map<std::tuple<OpKind, std::int64_t, std::string_view>, std::int64_t> segments_;
};

}  // namespace gradwire
