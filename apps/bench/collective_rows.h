// A collective benchmark's rows, as a table for people and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bench/collective_bench.h"

namespace gradwire {

// Keys are only ever added.
nlohmann::ordered_json json_of(const bench::CollectiveRow& row);

// What the run is about, for the head of the table.
struct BenchHead {
  std::string transport;  // "ucx 1.13.1: ..."
  std::string launcher;   // who started the ranks
  double deadline = 0;    // seconds
  int ranks = 1;
};
void print_heading(const bench::CollectiveBenchOptions& options, const BenchHead& head);
void print_row(const bench::CollectiveRow& row);

}  // namespace gradwire
