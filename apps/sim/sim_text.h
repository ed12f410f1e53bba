// A simulation as text: the table that people read, and JSON lines.
#pragma once

#include <string>
#include <vector>

#include "apps/sim/sim_rows.h"

namespace gradwire {

// "12.3 us"; four digits.
std::string time_text(double seconds);
// "64 KiB", "1.5 GiB"; powers of 1024, whole where they are.
std::string size_text(std::int64_t bytes);

// "all_reduce of 1 GiB, 4096 ranks on 512 nodes" and the links.
std::string heading_text(const CostQuestion& question);
std::string table_text(const CostQuestion& question, const std::vector<SimRow>& rows);
// Which algorithm is chosen from which size on: "ring; from 96 KiB canonical".
std::string crossover_text(const CostQuestion& question);
// One line a row.
std::string json_lines(const CostQuestion& question, const std::vector<SimRow>& rows);

}  // namespace gradwire
