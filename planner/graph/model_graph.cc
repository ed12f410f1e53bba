#include "planner/graph/model_graph.h"

#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "trainer/layers/avg_pool2d.h"
#include "trainer/layers/batch_norm2d.h"
#include "trainer/layers/conv2d.h"
#include "trainer/layers/dropout.h"
#include "trainer/layers/gelu.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/max_pool2d.h"
#include "trainer/layers/relu.h"
#include "trainer/layers/residual.h"
#include "trainer/model_costs.h"

namespace gradwire {
namespace {

template <typename... Layers>
bool is_one_of(const Layer<float>& layer) {
  return ((dynamic_cast<const Layers*>(&layer) != nullptr) || ...);
}

// A sequence of n features at p positions is (p, 1, n), an image has its places.
bool is_sequence(const SampleShape& shape) { return shape.height == 1 && shape.width > 1; }

void set_shape(const SampleShape& shape, GraphOperator& one) {
  const bool sequence = is_sequence(shape);
  one.positions = sequence ? shape.channels : shape.height * shape.width;
  one.channels = sequence ? shape.width : shape.channels;
}

// Products of all samples: more than check_graph() takes rather than an overflow.
std::int64_t of_all(std::int64_t macs, std::int64_t samples) {
  constexpr std::int64_t kMost = std::int64_t{1} << 60;
  return macs > kMost / samples ? kMost + 1 : macs * samples;
}

}  // namespace

Result<OperatorGraph> model_graph(const Model<float>& model, std::int64_t samples) {
  if (samples < 1) {
    return Status(Code::kInvalidArgument, format("graph of samples=%lld (expected 1 or more)",
                                                 static_cast<long long>(samples)));
  }
  OperatorGraph graph;
  graph.name = "model";
  graph.samples = samples;
  std::set<std::string> names;
  const std::vector<LayerAccount> accounts = model_costs(model, 1);
  for (std::size_t i = 0; i < model.layers(); ++i) {
    const Layer<float>& layer = model.layer(i);
    const LayerAccount& account = accounts[i];
    GraphOperator one;
    // Layers without parameters may have no name of their own.
    one.name = account.name;
    if (one.name.empty() || !names.insert(one.name).second) one.name += format("#%zu", i);
    one.forward_macs = of_all(account.macs.forward_macs, samples);
    one.backward_macs = of_all(account.macs.input_macs + account.macs.weight_macs, samples);
    one.parameter_bytes = account.parameters * static_cast<std::int64_t>(sizeof(float));
    set_shape(layer.output(), one);
    const bool convolves = is_one_of<Conv2d<float>>(layer);
    const bool own = i > 0 && is_one_of<AvgPool2d<float>, BatchNorm2d<float>, Dropout<float>,
                                        Gelu<float>, MaxPool2d<float>, Relu<float>>(layer);
    one.splits_channels = convolves || own || is_one_of<Linear<float>>(layer);
    one.splits_positions = (convolves || own) && one.positions > 1;
    one.splits_inside = is_one_of<Residual<float>>(layer) && is_sequence(layer.output());
    one.reads_all_channels = !own || graph.operators.back().channels != one.channels;
    if (i > 0) one.inputs = {static_cast<int>(i) - 1};
    graph.operators.push_back(std::move(one));
  }
  GW_TRY(check_graph(graph));
  return graph;
}

}  // namespace gradwire
