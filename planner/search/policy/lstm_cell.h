// One step of a long short-term memory, and its derivative.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace gradwire {

// Parameters: for each gate (input, forget, output, candidate) and unit a row of weights of
// (inputs, state before), and its bias behind them.
struct LstmShape {
  std::size_t inputs = 1;
  std::size_t units = 1;
  std::size_t row() const { return inputs + units + 1; }
  std::size_t parameters() const { return 4 * units * row(); }
};

// What a step read and gave; backward needs all of it.
struct LstmStep {
  std::vector<double> joined = {};  // inputs, then the state before: [inputs + units]
  std::vector<double> memory_before = {};
  std::vector<double> gates = {};  // [4 * units], behind their functions
  std::vector<double> memory = {};
  std::vector<double> squashed = {};  // tanh of memory
  std::vector<double> state = {};
};

// Source: Hochreiter and Schmidhuber, Neural Computation 1997, with the forget gate of Gers,
// Schmidhuber and Cummins, Neural Computation 2000.
LstmStep lstm_step(const LstmShape& shape, std::span<const double> parameters,
                   std::span<const double> input, std::span<const double> state,
                   std::span<const double> memory);

// Gradients of what a step read.
struct LstmBack {
  std::vector<double> input = {};
  std::vector<double> state = {};
  std::vector<double> memory = {};
};
// From those of its state and memory; adds the parameters' to `gradient`.
LstmBack lstm_back(const LstmShape& shape, std::span<const double> parameters, const LstmStep& step,
                   std::span<const double> of_state, std::span<const double> of_memory,
                   std::span<double> gradient);

}  // namespace gradwire
