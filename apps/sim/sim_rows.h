// The rows of a simulation: algorithms by their schedules, compressed exchanges by formula.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/cost/model.h"
#include "gradwire/status.h"

namespace gradwire {

struct SimRow {
  std::string algorithm;  // "ring", "qsgd:bits=8, two-hop"
  bool simulated = true;  // false: by formula, or of alike nodes that stand for those asked for
  double seconds = 0;
  double formula_seconds = 0;  // `seconds`, if the row is not simulated
  std::int64_t wire_bytes_max = 0;
  std::int64_t node_bytes_max = 0;
  int rounds = 0;
  int simulated_ranks = 0;
  std::int64_t segment_bytes = 0;
  bool chosen = false;
};

// The algorithms of the question's collective, each simulated, or estimated where it has more steps
// than are simulated (cost_of()), the chosen one marked. `before` is told of each in turn, with how
// many are done.
Result<std::vector<SimRow>> simulate_rows(
    const CostQuestion& question,
    const std::function<void(int done, int total, std::string_view algorithm)>& before);

// The exchanges that a compressor may take part in, for the same all-reduce. codec: seconds per raw
// byte and pass. kInvalidArgument for a bad spec.
Result<std::vector<SimRow>> compressed_rows(const CostQuestion& question, const std::string& spec,
                                            double codec);

}  // namespace gradwire
