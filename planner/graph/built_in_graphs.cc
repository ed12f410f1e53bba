#include "planner/graph/built_in_graphs.h"

#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::int64_t kFloatBytes = 4;

// Adds operators whose costs follow from their shapes.
class GraphBuilder {
 public:
  GraphBuilder(std::string name, std::int64_t samples) {
    graph_.name = std::move(name);
    graph_.samples = samples;
  }

  // A product over `inner` elements for each output; backward costs twice its forward (by inputs
  // and by weights).
  int product(const GraphOperator& shape, std::int64_t inner, std::int64_t parameters) {
    GraphOperator one = shape;
    one.forward_macs = graph_.samples * one.positions * one.channels * inner;
    one.backward_macs = 2 * one.forward_macs;
    one.parameter_bytes = parameters * kFloatBytes;
    return add(one);
  }
  // A convolution of k x k by all channels of its input.
  int convolution(const std::string& name, const std::string& group, int input, std::int64_t k,
                  std::int64_t channels) {
    const GraphOperator& from = graph_.at(input);
    const std::int64_t inner = k * k * from.channels;
    return product({.name = name,
                    .group = group,
                    .positions = from.positions,
                    .channels = channels,
                    .splits_positions = true,
                    .splits_channels = true,
                    .inputs = {input}},
                   inner, inner * channels);
  }
  int add(GraphOperator one) {
    graph_.operators.push_back(std::move(one));
    return graph_.size() - 1;
  }
  OperatorGraph take() { return std::move(graph_); }

 private:
  OperatorGraph graph_;
};

void add_block(GraphBuilder& graph, const std::string& block, int& last, std::int64_t channels,
               std::int64_t positions) {
  const auto group = [&block](int branch) { return format("%s.branch%d", block.c_str(), branch); };
  const auto name = [&group](int branch, const char* what) { return group(branch) + "." + what; };
  const int one = graph.convolution(name(0, "conv1x1"), group(0), last, 1, channels);
  const int reduced = graph.convolution(name(1, "reduce"), group(1), last, 1, channels);
  const int three = graph.convolution(name(1, "conv3x3"), group(1), reduced, 3, channels);
  const int small = graph.convolution(name(2, "reduce"), group(2), last, 1, channels / 4);
  const int five = graph.convolution(name(2, "conv5x5"), group(2), small, 5, channels);
  const int pool = graph.add({.name = name(3, "pool"),
                              .group = group(3),
                              .positions = positions,
                              .channels = 4 * channels,
                              .splits_positions = true,
                              .splits_channels = true,
                              .reads_all_channels = false,
                              .inputs = {last}});
  const int behind = graph.convolution(name(3, "conv1x1"), group(3), pool, 1, channels);
  last = graph.add({.name = block + ".join",
                    .group = group(0),
                    .positions = positions,
                    .channels = 4 * channels,
                    .inputs = {one, three, five, behind}});
}

}  // namespace

OperatorGraph unrolled_lstm(int layers, int steps, std::int64_t samples, std::int64_t width) {
  GraphBuilder graph(format("lstm of %d layers and %d steps", layers, steps), samples);
  const std::int64_t vocabulary = 4 * width;
  std::vector<int> below;
  for (int step = 0; step < steps; ++step) {
    below.push_back(graph.add({.name = format("embedding%d", step),
                               .group = "embeddings",
                               .layer = 0,
                               .parameter_bytes = vocabulary * width * kFloatBytes / steps,
                               .channels = width}));
  }
  for (int layer = 0; layer < layers; ++layer) {
    int before = -1;
    for (int step = 0; step < steps; ++step) {
      std::vector<int> inputs{below[static_cast<std::size_t>(step)]};
      if (before >= 0) inputs.push_back(before);
      before = graph.product({.name = format("layer%d.step%d", layer, step),
                              .group = format("layer%d.steps%d", layer, step / 2),
                              .layer = layer,
                              .channels = width,
                              .splits_channels = true,
                              .inputs = inputs},
                             8 * width, 8 * width * width / steps);
      below[static_cast<std::size_t>(step)] = before;
    }
  }
  for (int step = 0; step < steps; ++step) {
    graph.product({.name = format("head%d", step),
                   .group = "heads",
                   .layer = layers - 1,
                   .channels = vocabulary,
                   .splits_channels = true,
                   .inputs = {below[static_cast<std::size_t>(step)]}},
                  width, vocabulary * width / steps);
  }
  return graph.take();
}

OperatorGraph inception_like(int blocks, std::int64_t samples, std::int64_t channels) {
  constexpr std::int64_t kPositions = 28 * 28;
  GraphBuilder graph(format("inception of %d blocks", blocks), samples);
  int last = graph.product({.name = "stem",
                            .positions = kPositions,
                            .channels = 4 * channels,
                            .splits_positions = true,
                            .splits_channels = true},
                           3 * 3 * 3, 3 * 3 * 3 * 4 * channels);
  for (int block = 0; block < blocks; ++block) {
    add_block(graph, format("block%d", block), last, channels, kPositions);
  }
  const std::int64_t classes = 1000;
  graph.product({.name = "head", .channels = classes, .splits_channels = true, .inputs = {last}},
                4 * channels, 4 * channels * classes);
  return graph.take();
}

std::vector<std::string> built_in_graph_names() { return {"lstm", "inception"}; }

Result<OperatorGraph> built_in_graph(const std::string& name) {
  if (name == "lstm") return unrolled_lstm(2, 8, 64, 1024);
  if (name == "inception") return inception_like(2, 32, 64);
  return Status(Code::kInvalidArgument,
                "graph '" + name + "' (expected " + joined(built_in_graph_names()) + ")");
}

}  // namespace gradwire
