// What is placed: the operators of one training step, and which of them read what.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

// One operator. Its output is, for each sample, `positions` x `channels` elements: a vector has one
// position, a sequence or an image several.
struct GraphOperator {
  std::string name;
  // Operators of one group are placed together where a searcher places groups. Empty: of its own.
  std::string group = {};
  // The layer of the network that this is a step of, from 0; -1: none. Experts place by layers.
  int layer = -1;
  // Multiplications with their additions, for all samples of the step.
  std::int64_t forward_macs = 0;
  std::int64_t backward_macs = 0;
  std::int64_t parameter_bytes = 0;
  std::int64_t positions = 1;
  std::int64_t channels = 1;
  std::int64_t element_bytes = 4;
  // Whether it may be divided by positions; by output channels, and its parameters with them;
  // inside, with whole inputs and outputs and a sum on the way forward and back (a block's half
  // under Megatron's layout). By samples every operator may.
  bool splits_positions = false;
  bool splits_channels = false;
  bool splits_inside = false;
  // Whether each output channel reads all channels of the inputs (products), or its own alone (an
  // activation function). A part of the positions reads the same part of an input that has as many,
  // and all of another.
  bool reads_all_channels = true;
  std::vector<int> inputs = {};  // numbers of earlier operators; none twice
};

struct OperatorGraph {
  std::string name;
  std::int64_t samples = 1;  // of one step
  std::vector<GraphOperator> operators = {};

  int size() const { return static_cast<int>(operators.size()); }
  const GraphOperator& at(int number) const { return operators[static_cast<std::size_t>(number)]; }
  // Of all samples; what is sent to a reader, and kept for backward.
  std::int64_t output_bytes(int number) const;
  // By operator: who reads it, ascending.
  std::vector<std::vector<int>> readers() const;
  // Operators by group, groups by their first operator.
  std::vector<std::vector<int>> groups() const;
};

// kInvalidArgument names the operator: no operators, a name that is missing or stands twice, sizes
// out of range (0 or more; samples, positions, channels and element_bytes from 1; 2^40 at most,
// products 2^60, an output 2^50 bytes), inputs that do not come before it or stand twice, a
// channel-wise reader of inputs with other numbers of channels, or of none.
Status check_graph(const OperatorGraph& graph);
// Of one operator alone, but for names that stand twice; those before it are in order.
Status check_operator(const OperatorGraph& graph, int number);

}  // namespace gradwire
