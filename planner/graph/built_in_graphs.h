// Operator graphs of networks that the trainer does not have, for searchers to be compared on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "planner/graph/operator_graph.h"

namespace gradwire {

// A recurrent network of `layers` LSTM layers, unrolled over `steps` time steps, with an embedding
// and a head for each step. A cell reads the one below it and the one before it, and has four
// products of (its input and its state) by `width`. Its parameters are those of all steps of a
// layer: each step has its share of the bytes. A layer's steps have its number (GraphOperator::
// layer), embeddings the first layer's and heads the last one's. Groups are pairs of steps of one
// layer, so that 2 layers of 8 steps are 8 groups and two (embeddings, heads).
// Source: Hochreiter and Schmidhuber, Neural Computation 1997; unrolled as in Mirhoseini et al.,
// "Device placement optimization with reinforcement learning", ICML 2017.
OperatorGraph unrolled_lstm(int layers, int steps, std::int64_t samples, std::int64_t width);

// `blocks` blocks of four branches (convolution 1x1; 1x1 and 3x3; 1x1 and 5x5; pool and 1x1) whose
// outputs are joined, behind a stem of one convolution, and a head. Each branch is a group, stem
// and head are one each, and a join is in its block's first branch's.
// Source: Szegedy et al., "Going deeper with convolutions", CVPR 2015.
OperatorGraph inception_like(int blocks, std::int64_t samples, std::int64_t channels);

// "lstm" (2 layers, 8 steps), "inception" (2 blocks).
std::vector<std::string> built_in_graph_names();
// kInvalidArgument for another name.
Result<OperatorGraph> built_in_graph(const std::string& name);

}  // namespace gradwire
