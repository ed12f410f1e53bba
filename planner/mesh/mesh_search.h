// The mesh on which a step takes least time: all of them, of which a lower bound leaves out those
// that cannot be among the best, and the simulator ranks the others.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "planner/mesh/mesh_choice.h"
#include "planner/mesh/mesh_costs.h"
#include "planner/mesh/mesh_memory.h"
#include "planner/mesh/mesh_problem.h"
#include "planner/mesh/mesh_step.h"

namespace gradwire {

// Where a step's time goes: each class of exchanges by how much shorter the simulated step is
// without it, in the order of these names; they add up to the step. Nanoseconds.
struct MeshPhases {
  std::int64_t compute = 0;  // layers and update of the rank that has most
  std::int64_t bubble = 0;   // what is left without any exchange
  std::int64_t tensors = 0;
  std::int64_t messages = 0;
  std::int64_t data = 0;
};

// That the rank sends in a step which sends most of the class.
struct MeshBytes {
  double data = 0;
  double messages = 0;
  double tensors = 0;
};

struct MeshAnswer {
  MeshChoice choice = {};
  std::int64_t bound = 0;  // nanoseconds: no step is shorter
  std::int64_t ticks = 0;  // simulated
  std::vector<MeshRankMemory> memory = {};
  int fullest = 0;        // in `memory`: the rank with least room left
  std::int64_t room = 0;  // bytes of that rank's device
  MeshPhases phases = {};
  MeshBytes bytes = {};

  // Of the fullest rank: what it holds, and that with what may be on its way.
  std::int64_t most_memory() const { return memory[static_cast<std::size_t>(fullest)].total(); }
  std::int64_t most_needed() const { return memory[static_cast<std::size_t>(fullest)].most(); }
};

// What a search does, in this order.
enum class MeshSearchPart : std::uint8_t {
  kListed,   // counts numbers of ranks, of which all choices are listed and stages cut
  kBounded,  // counts choices, whose lower bounds are found
  // Holds choices to memory and simulates them, as long as the bound leaves any: a part of these,
  // which become fewer while the rows become faster, as a part of all choices.
  kTried,
};

// How far a part is; `best` is the fastest choice so far, of kTried alone.
struct MeshSearchProgress {
  MeshSearchPart part = MeshSearchPart::kListed;
  std::int64_t done = 0;
  std::int64_t all = 1;
  std::string best = {};
};
using MeshProgress = std::function<void(const MeshSearchProgress&)>;

struct MeshSearchOptions {
  int rows = 20;       // that are wanted, the fastest first
  bool phases = true;  // whether rows have phases and bytes
  // Those to choose from; empty: all of mesh_choices().
  std::vector<MeshChoice> among = {};
  MeshProgress progress = {};  // told often; on the thread that searches
};

struct MeshSearchResult {
  std::vector<MeshAnswer> rows = {};
  // That the model and the schedules may serve, and those whose stages were cut by memory.
  std::int64_t choices = 0;
  std::int64_t simulated = 0;
  std::map<std::string, std::int64_t> left_out = {};  // by reason
};

// All (dp, tp, pp, schedule, layers of stages as runs cut them and by their time, ZeRO stage,
// micro-batches, recompute, compressor) on as many ranks as
// there are devices, with the batch divided evenly; where a rank has no room for its stages, layers
// by memory in their place (roomy_stages()). kInvalidArgument: no choice at all, or none
// that fits; a compressor that is none.
Result<MeshSearchResult> search_mesh(const MeshProblem& problem, const MeshSearchOptions& options);

// One choice: its time, memory, phases and bytes, whether or not it fits. Errors as of its parts:
// what the model or the schedule does not serve.
Result<MeshAnswer> answer_mesh(const MeshProblem& problem, const MeshChoice& choice);
// One choice's step with what had each rank and when. Errors as of answer_mesh().
Result<MeshStep> trace_mesh(const MeshProblem& problem, const MeshChoice& choice);
// Whether all ranks have room.
bool fits(const MeshAnswer& answer);

// "30: the schedule does not serve so many micro-batches; 5: ...": how many, by reason.
std::string reasons_text(const std::map<std::string, std::int64_t>& left_out);

// All choices of a problem, with why the others are none.
struct MeshChoices {
  std::vector<MeshChoice> all = {};
  std::map<std::string, std::int64_t> left_out = {};
};
Result<MeshChoices> mesh_choices(const MeshProblem& problem, const MeshProgress& progress = {});

// Those of `choices` beside `choice`: ranks move between two axes, whatever the number of
// micro-batches is then (and the schedule, where one of both has no pipeline), or one of schedule,
// ZeRO stage, micro-batches, recompute and compressor is another one, or the layers of the stages
// are where the others are the same.
std::vector<MeshChoice> mesh_neighbours(const std::vector<MeshChoice>& choices,
                                        const MeshChoice& choice);

}  // namespace gradwire
