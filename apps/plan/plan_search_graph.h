// The graph that `gradwire plan search` places: of a file, built in, or of a model of the trainer.
#pragma once

#include <cstdint>
#include <string>

#include "apps/flags.h"
#include "apps/plan/plan_question.h"
#include "planner/graph/operator_graph.h"

namespace gradwire {

struct GraphQuestion {
  std::string graph;        // --graph
  std::int64_t batch = 64;  // samples of a step, of a model
  PlanQuestion model = {};  // its flags alone
};

void add_graph_flags(Flags& flags, GraphQuestion& question);
// Whether --graph is a model of gradwire train.
bool is_train_model(const GraphQuestion& question);
// kInvalidArgument names the flag: no graph, flags of a model beside another graph, and a model
// without its sizes.
Status check_graph_flags(const Flags& flags, const GraphQuestion& question);
// Errors as read_whole_file(), parse_graph(), plan_model() and model_graph().
Result<OperatorGraph> read_search_graph(const GraphQuestion& question);

}  // namespace gradwire
