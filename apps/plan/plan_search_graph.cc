#include "apps/plan/plan_search_graph.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "apps/plan/plan_model.h"
#include "apps/whole_file.h"
#include "base/text.h"
#include "planner/graph/built_in_graphs.h"
#include "planner/graph/graph_file.h"
#include "planner/graph/model_graph.h"
#include "trainer/models.h"

namespace gradwire {
namespace {

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

Status check_model_sizes(const Flags& flags, const GraphQuestion& q) {
  const bool is_gpt = q.graph == "gpt";
  const std::string what = "plan search: --graph " + q.graph + ": ";
  for (const char* name : {"layers", "width", "heads", "sequence", "vocabulary"}) {
    if (is_gpt == flags.given(name)) continue;
    return {Code::kInvalidArgument,
            what + "--" + name + (is_gpt ? " is missing" : " is of a gpt (expected --image)")};
  }
  for (const char* name : {"image", "classes", "hidden"}) {
    if (!flags.given(name)) continue;
    if (is_gpt) {
      return {Code::kInvalidArgument, what + "--" + name + " is of another model than gpt"};
    }
    if (name == std::string("hidden") && q.graph != "mlp") {
      return {Code::kInvalidArgument, what + "--hidden is of an mlp"};
    }
  }
  if (is_gpt || flags.given("image")) return {};
  return {Code::kInvalidArgument, what + "no sample (expected --image, like 3x32x32)"};
}

}  // namespace

void add_graph_flags(Flags& flags, GraphQuestion& q) {
  constexpr Limits kSizes{1, 1 << 24};
  flags.text("graph", q.graph,
             "operators: a JSON file, one of " + gradwire::joined(built_in_graph_names()) +
                 ", or a model of gradwire train, one of " + gradwire::joined(model_names()),
             "none", "FILE");
  TransformerShape& shape = q.model.transformer;
  flags.integer("batch", q.batch, {1, 1 << 30}, "samples of a step, of a model");
  flags.custom(
      "image", "CxHxW", "none",
      [&q](const std::string& text) {
        GW_ASSIGN(q.model.image, parse_image_size(text));
        return Status();
      },
      "a sample of a model: channels, height and width, in elements");
  flags.integer("classes", q.model.classes, kSizes, "classes of a model");
  flags.integers("hidden", q.model.hidden, {1, 65536},
                 "mlp: widths of the hidden layers, in units");
  flags.integer("layers", shape.layers, kSizes, "gpt: number of blocks", "none");
  flags.integer("width", shape.width, kSizes, "gpt: width of the hidden state", "none");
  flags.integer("heads", shape.heads, kSizes, "gpt: attention heads", "none");
  flags.integer("sequence", shape.sequence, kSizes, "gpt: length of a sample, in tokens", "none");
  flags.integer("vocabulary", shape.vocabulary, kSizes, "gpt: vocabulary, in tokens", "none");
}

bool is_train_model(const GraphQuestion& q) { return is_among(model_names(), q.graph); }

Status check_graph_flags(const Flags& flags, const GraphQuestion& q) {
  if (q.graph.empty()) return {Code::kInvalidArgument, "plan search: --graph is missing"};
  if (is_train_model(q)) return check_model_sizes(flags, q);
  for (const char* name : {"batch", "image", "classes", "hidden", "layers", "width", "heads",
                           "sequence", "vocabulary"}) {
    if (!flags.given(name)) continue;
    return {Code::kInvalidArgument,
            format("plan search: --%s is of a model (got --graph %s, expected one of %s)", name,
                   q.graph.c_str(), joined(model_names()).c_str())};
  }
  return {};
}

Result<OperatorGraph> read_search_graph(const GraphQuestion& q) {
  if (is_among(built_in_graph_names(), q.graph)) return built_in_graph(q.graph);
  if (!is_train_model(q)) {
    GW_ASSIGN(const std::string text, read_whole_file(q.graph));
    return parse_graph(text, q.graph);
  }
  PlanQuestion asked = q.model;
  asked.model = q.graph;
  GW_ASSIGN(const Model<float> model, plan_model(asked));
  GW_ASSIGN(OperatorGraph graph, model_graph(model, q.batch));
  graph.name = q.graph;
  return graph;
}

}  // namespace gradwire
