// What a run held in memory, class by class, beside what its plan says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/communicator.h"
#include "gradwire/status.h"
#include "trainer/accounts/run_memory.h"
#include "trainer/memory/memory_arena.h"

namespace gradwire {

// Bytes of one class in one place.
struct MemoryLine {
  std::string place;  // device, host
  std::string what;   // as to_string(MemoryClass)
  std::int64_t planned = 0;
  // Between steps; of what comes and goes within a step (gathered, activations, workspace,
  // communication, and gradients where RunMemory::whole_sums), the most.
  std::int64_t held = 0;
  std::int64_t peak = 0;
};

struct MemoryTable {
  std::vector<MemoryLine> lines;  // classes that were held or planned
  std::int64_t device_peak = 0;   // of all classes together
  std::int64_t host_peak = 0;
  std::int64_t copied_out = 0;  // device to host, of the whole run
  std::int64_t copied_in = 0;
};

// Collective over `group`: the first of its ranks has all of their tables, in their order, the
// others none.
Result<std::vector<MemoryTable>> gather_tables(Communicator& group, const MemoryTable& own);

MemoryTable memory_table(const RunMemory& planned, const MemoryPlaces& places);

// For people; of rank `rank` of those that hold the model.
std::string memory_text(const MemoryTable& table, int rank = 0);

}  // namespace gradwire
