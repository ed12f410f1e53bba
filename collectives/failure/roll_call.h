// When an operation fails: who is there, and where are they? A rank that has given up on it asks
// all others; every rank's engine answers at once, whatever its caller does. So a rank that only
// waits for a missing one is not taken for it, and all name the same rank, not their neighbour.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/failure/flight_recorder.h"
#include "collectives/failure/notes.h"
#include "gradwire/transport.h"

namespace gradwire {

struct Question {
  std::vector<int> group;  // job ranks
  std::uint32_t communicator = 0;
  std::uint64_t operation = 0;
  std::string description = {};  // to_string() of its signature
};

struct RollCall {
  std::vector<int> silent = {};   // job ranks that did not answer, ascending
  std::vector<int> absent = {};   // that have not begun the operation, ascending
  std::string absent_do = {};     // what the first of these did last; may be empty
  std::string disagreement = {};  // "rank 2 runs barrier", if one answered another description
  std::vector<int> answered = {};
};

// Blocks for at most `seconds`, less when all that are not lost have answered. Answers others
// meanwhile.
RollCall take_roll_call(Transport& transport, const Question& question,
                        const FlightRecorder& recorder, double seconds);

// Answers a note of kind kAsk. `failure`: of this rank, if it has given up.
void answer(Transport& transport, int to, const EngineNote& ask, const FlightRecorder& recorder,
            const Status& failure);

// "rank 2" or "ranks 2, 3".
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace gradwire
