// What a search for a mesh shows: a table, the reasons of a row, JSON lines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/mesh/mesh_search.h"

namespace gradwire {

// A line for each row, how many choices were left out and why.
std::string mesh_table(const MeshSearchResult& result);
// JSON lines: "mesh" for each row, "left_out" for each reason, "search" for the whole.
std::string mesh_lines(const MeshSearchResult& result);

// Row `number` (from 1): where its step's time goes, what its ranks hold by class, what they send;
// and `near`, those that differ from it in the axes of ranks or in one other choice, the fastest
// first.
std::string why_text(std::int64_t number, const MeshAnswer& row,
                     const std::vector<MeshAnswer>& near);
// JSON lines: "rank" for each rank of the pipeline, "neighbour" for each of `near`.
std::string why_lines(const MeshAnswer& row, const std::vector<MeshAnswer>& near);

// A share of the step's time, for people.
struct NamedPhase {
  const char* name;
  std::int64_t ticks;
};
std::vector<NamedPhase> named_phases(const MeshPhases& phases);

}  // namespace gradwire
