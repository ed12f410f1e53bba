#include <cmath>
#include <memory>
#include <utility>

#include "base/text.h"
#include "trainer/layers/causal_attention.h"
#include "trainer/layers/chain.h"
#include "trainer/layers/dropout.h"
#include "trainer/layers/embedding.h"
#include "trainer/layers/gelu.h"
#include "trainer/layers/layer_norm.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/residual.h"
#include "trainer/models/families.h"

namespace gradwire::families {
namespace {

struct BlockOptions {
  SampleShape shape;  // (positions, 1, width)
  std::int64_t heads = 1;
  double dropout = 0;
};

template <typename T>
void add_dropout(Chain<T>& chain, const BlockOptions& o, const std::string& name) {
  if (o.dropout == 0) return;
  chain.add("dropout", std::make_unique<Dropout<T>>(o.shape, o.dropout, name + ".dropout"));
}

template <typename T>
std::unique_ptr<Layer<T>> attention(const BlockOptions& o, const std::string& name) {
  const std::int64_t width = o.shape.width;
  const LinearOptions each{true, o.shape.channels};
  auto branch = std::make_unique<Chain<T>>(o.shape);
  branch->add("norm", std::make_unique<LayerNorm<T>>(o.shape));
  branch->add("qkv", std::make_unique<Linear<T>>(width, 3 * width, each));
  branch->add("heads", std::make_unique<CausalAttention<T>>(o.shape.channels, width, o.heads));
  branch->add("out", std::make_unique<Linear<T>>(width, width, each));
  add_dropout(*branch, o, name);
  return std::make_unique<Residual<T>>(o.shape, std::move(branch));
}

template <typename T>
std::unique_ptr<Layer<T>> mlp(const BlockOptions& o, const std::string& name) {
  const std::int64_t width = o.shape.width;
  const LinearOptions each{true, o.shape.channels};
  auto branch = std::make_unique<Chain<T>>(o.shape);
  branch->add("norm", std::make_unique<LayerNorm<T>>(o.shape));
  branch->add("fc", std::make_unique<Linear<T>>(width, 4 * width, each));
  branch->add("gelu", std::make_unique<Gelu<T>>(branch->output()));
  branch->add("out", std::make_unique<Linear<T>>(4 * width, width, each));
  add_dropout(*branch, o, name);
  return std::make_unique<Residual<T>>(o.shape, std::move(branch));
}

Status check(const ModelOptions& options, SampleShape input, std::int64_t width) {
  if (input.height != 1 || input.width != 1) {
    return Status(
        Code::kInvalidArgument,
        format("model gpt: samples of %lldx%lldx%lld (expected a text's windows)",
               static_cast<long long>(input.channels), static_cast<long long>(input.height),
               static_cast<long long>(input.width)));
  }
  GW_TRY(check_size("gpt", "width", width, 1, 1 << 14));
  GW_TRY(check_size("gpt", "layers", options.layers, 0, 1024));
  GW_TRY(check_size("gpt", "heads", options.heads, 1, width));
  if (width % options.heads == 0) return {};
  return Status(Code::kInvalidArgument,
                format("model gpt: width %lld (expected a multiple of the %lld heads)",
                       static_cast<long long>(width), static_cast<long long>(options.heads)));
}

// The weights that write into the stream: GPT-2 makes them smaller the more of them there are.
bool ends_branch(const ParameterInfo& info) { return info.name.ends_with(".out.weight"); }

}  // namespace

template <typename T>
Result<Model<T>> make_gpt(const ModelOptions& options, SampleShape input, std::int64_t classes) {
  const std::int64_t width = options.width.value_or(64);
  GW_TRY(check(options, input, width));
  const EmbeddingShape table{classes, input.channels, width};
  const BlockOptions block{{input.channels, 1, width}, options.heads, options.dropout.value_or(0)};
  Model<T> model(input);
  model.add("embed", std::make_unique<Embedding<T>>(table));
  if (block.dropout > 0) {
    model.add("embed.dropout",
              std::make_unique<Dropout<T>>(block.shape, block.dropout, "embed.dropout"));
  }
  for (std::int64_t number = 1; number <= options.layers; ++number) {
    const std::string name = "block" + std::to_string(number);
    model.add(name + ".attention", attention<T>(block, name + ".attention"));
    model.add(name + ".mlp", mlp<T>(block, name + ".mlp"));
  }
  model.add("norm", std::make_unique<LayerNorm<T>>(block.shape));
  if (options.tied) {
    model.add_tied("head", std::make_unique<TiedHead<T>>(table), "embed.token");
  } else {
    model.add("head",
              std::make_unique<Linear<T>>(width, classes, LinearOptions{false, input.channels}));
  }
  const double deeper = 1 / std::sqrt(2.0 * static_cast<double>(options.layers));
  model.set_init([&](ParameterInfo& info) {
    const bool all = options.init == "gpt2";
    if (all || info.shape.rank == 2) set_init(info, "gpt2");
    if (all && ends_branch(info)) info.init.value *= deeper;
  });
  return model;
}

template Result<Model<float>> make_gpt<float>(const ModelOptions&, SampleShape, std::int64_t);
template Result<Model<double>> make_gpt<double>(const ModelOptions&, SampleShape, std::int64_t);

}  // namespace gradwire::families
