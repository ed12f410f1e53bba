#include "planner/search/policy/lstm_cell.h"

#include <cmath>

namespace gradwire {

LstmStep lstm_step(const LstmShape& shape, std::span<const double> parameters,
                   std::span<const double> input, std::span<const double> state,
                   std::span<const double> memory) {
  const std::size_t units = shape.units;
  LstmStep step{.joined = {input.begin(), input.end()},
                .memory_before = {memory.begin(), memory.end()},
                .gates = std::vector<double>(4 * units),
                .memory = std::vector<double>(units),
                .squashed = std::vector<double>(units),
                .state = std::vector<double>(units)};
  step.joined.insert(step.joined.end(), state.begin(), state.end());
  for (std::size_t gate = 0; gate < 4 * units; ++gate) {
    const auto row = parameters.subspan(gate * shape.row(), shape.row());
    double sum = row.back();
    for (std::size_t i = 0; i < step.joined.size(); ++i) sum += row[i] * step.joined[i];
    step.gates[gate] = gate < 3 * units ? 1 / (1 + std::exp(-sum)) : std::tanh(sum);
  }
  for (std::size_t i = 0; i < units; ++i) {
    const double in = step.gates[i];
    const double kept = step.gates[units + i];
    const double out = step.gates[2 * units + i];
    step.memory[i] = kept * memory[i] + in * step.gates[3 * units + i];
    step.squashed[i] = std::tanh(step.memory[i]);
    step.state[i] = out * step.squashed[i];
  }
  return step;
}

LstmBack lstm_back(const LstmShape& shape, std::span<const double> parameters, const LstmStep& step,
                   std::span<const double> of_state, std::span<const double> of_memory,
                   std::span<double> gradient) {
  const std::size_t units = shape.units;
  LstmBack back;
  back.memory.resize(units);
  std::vector<double> of_sums(4 * units);  // before the gates' functions
  for (std::size_t i = 0; i < units; ++i) {
    const double in = step.gates[i];
    const double kept = step.gates[units + i];
    const double out = step.gates[2 * units + i];
    const double candidate = step.gates[3 * units + i];
    const double squashed = step.squashed[i];
    const double here = of_memory[i] + of_state[i] * out * (1 - squashed * squashed);
    of_sums[i] = here * candidate * in * (1 - in);
    of_sums[units + i] = here * step.memory_before[i] * kept * (1 - kept);
    of_sums[2 * units + i] = of_state[i] * squashed * out * (1 - out);
    of_sums[3 * units + i] = here * in * (1 - candidate * candidate);
    back.memory[i] = here * kept;
  }
  std::vector<double> of_joined(step.joined.size());
  for (std::size_t gate = 0; gate < 4 * units; ++gate) {
    const auto row = parameters.subspan(gate * shape.row(), shape.row());
    const auto along = gradient.subspan(gate * shape.row(), shape.row());
    for (std::size_t i = 0; i < step.joined.size(); ++i) {
      along[i] += of_sums[gate] * step.joined[i];
      of_joined[i] += of_sums[gate] * row[i];
    }
    along.back() += of_sums[gate];
  }
  const auto split = of_joined.begin() + static_cast<std::ptrdiff_t>(shape.inputs);
  back.input.assign(of_joined.begin(), split);
  back.state.assign(split, of_joined.end());
  return back;
}

}  // namespace gradwire
