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
#include "trainer/layers/parallel/column_linear.h"
#include "trainer/layers/parallel/input_sum.h"
#include "trainer/layers/parallel/row_linear.h"
#include "trainer/layers/parallel/sequence_input.h"
#include "trainer/layers/parallel/sequence_row_linear.h"
#include "trainer/layers/parallel/vocabulary_embedding.h"
#include "trainer/layers/residual.h"
#include "trainer/models/families.h"

namespace gradwire::families {
namespace {

SampleShape here_of(const SampleShape& whole, const TensorShare& share) {
  return {share.stream(whole.channels).size(), 1, whole.width};
}

// Reads what stands between the shared layers, and has some of its outputs here.
template <typename T>
std::unique_ptr<Layer<T>> entering(std::unique_ptr<Layer<T>> layer, const SampleShape& whole,
                                   const TensorShare& share) {
  if (share.sequence) return std::make_unique<SequenceInput<T>>(std::move(layer), whole, share);
  return std::make_unique<InputSum<T>>(std::move(layer));
}

struct BlockOptions {
  SampleShape shape;  // (positions, 1, width)
  std::int64_t heads = 1;
  double dropout = 0;
  TensorShare share = {};

  // Of what stands between the shared layers.
  SampleShape here() const { return here_of(shape, share); }
};

template <typename T>
void add_dropout(Chain<T>& chain, const BlockOptions& o, const std::string& name) {
  if (o.dropout == 0) return;
  chain.add("dropout",
            std::make_unique<Dropout<T>>(o.here(), o.dropout, name + ".dropout", o.share));
}

// A linear layer of `outputs` in groups of equal size, each divided like `units` things.
template <typename T>
std::unique_ptr<Layer<T>> columns_of(const BlockOptions& o, std::int64_t outputs,
                                     std::int64_t groups, std::int64_t units) {
  const LinearOptions each{true, o.shape.channels};
  const std::int64_t width = o.shape.width;
  if (!o.share.divides()) return std::make_unique<Linear<T>>(width, outputs, each);
  const std::int64_t unit = outputs / groups / units;
  const Range part = o.share.part(units);
  const ColumnShare share{outputs, {part.begin * unit, part.end * unit}, groups};
  return entering<T>(std::make_unique<ColumnLinear<T>>(width, share, each), o.shape, o.share);
}

// The linear layer behind it, of `inputs` that are divided likewise.
template <typename T>
std::unique_ptr<Layer<T>> rows_of(const BlockOptions& o, std::int64_t inputs, std::int64_t units) {
  const LinearOptions each{true, o.shape.channels};
  if (!o.share.divides()) return std::make_unique<Linear<T>>(inputs, o.shape.width, each);
  const std::int64_t unit = inputs / units;
  const Range part = o.share.part(units);
  const RowShare here{inputs, {part.begin * unit, part.end * unit}};
  if (!o.share.sequence) return std::make_unique<RowLinear<T>>(here, o.shape.width, each);
  return std::make_unique<SequenceRowLinear<T>>(here, o.shape.width, each, o.share);
}

template <typename T>
std::unique_ptr<Layer<T>> attention(const BlockOptions& o, const std::string& name) {
  const std::int64_t width = o.shape.width;
  const std::int64_t heads = o.share.part(o.heads).size();
  auto branch = std::make_unique<Chain<T>>(o.here());
  branch->add("norm", std::make_unique<LayerNorm<T>>(o.here()));
  branch->add("qkv", columns_of<T>(o, 3 * width, 3, o.heads));
  branch->add("heads", std::make_unique<CausalAttention<T>>(o.shape.channels,
                                                            width / o.heads * heads, heads));
  branch->add("out", rows_of<T>(o, width, o.heads));
  add_dropout(*branch, o, name);
  return std::make_unique<Residual<T>>(o.here(), std::move(branch));
}

template <typename T>
std::unique_ptr<Layer<T>> mlp(const BlockOptions& o, const std::string& name) {
  const std::int64_t inner = 4 * o.shape.width;
  auto branch = std::make_unique<Chain<T>>(o.here());
  branch->add("norm", std::make_unique<LayerNorm<T>>(o.here()));
  branch->add("fc", columns_of<T>(o, inner, 1, inner));
  branch->add("gelu", std::make_unique<Gelu<T>>(branch->output()));
  branch->add("out", rows_of<T>(o, inner, inner));
  add_dropout(*branch, o, name);
  return std::make_unique<Residual<T>>(o.here(), std::move(branch));
}

// The embedding, and the head behind everything.
template <typename T>
std::unique_ptr<Layer<T>> embedding(const EmbeddingShape& table, const TensorShare& share) {
  if (!share.divides()) return std::make_unique<Embedding<T>>(table);
  return std::make_unique<VocabularyEmbedding<T>>(table, share);
}

template <typename T>
void add_head(Model<T>& model, const EmbeddingShape& table, const TensorShare& share, bool tied) {
  const LinearOptions each{false, table.positions};
  const Range here = share.part(table.vocabulary);
  std::unique_ptr<Layer<T>> head;
  if (tied) {
    head = std::make_unique<TiedHead<T>>(EmbeddingShape{here.size(), table.positions, table.width});
  } else if (share.divides()) {
    head =
        std::make_unique<ColumnLinear<T>>(table.width, ColumnShare{table.vocabulary, here}, each);
  } else {
    head = std::make_unique<Linear<T>>(table.width, table.vocabulary, each);
  }
  if (share.divides()) {
    head = entering<T>(std::move(head), {table.positions, 1, table.width}, share);
    model.divide_classes({here, table.vocabulary});
  }
  if (tied) return model.add_tied("head", std::move(head), "embed.token");
  model.add("head", std::move(head));
}

Status check_share(const ModelOptions& options, std::int64_t positions, std::int64_t classes) {
  const int ranks = options.share.ranks;
  if (!divides_evenly(options.heads, ranks)) {
    return {Code::kInvalidArgument,
            format("model gpt: %lld heads among %d ranks of tp (expected a multiple of the ranks)",
                   static_cast<long long>(options.heads), ranks)};
  }
  if (options.share.sequence && !divides_evenly(positions, ranks)) {
    return {
        Code::kInvalidArgument,
        format("model gpt: %lld positions among %d ranks of tp/megatron[sequence=on] (expected a "
               "multiple of the ranks)",
               static_cast<long long>(positions), ranks)};
  }
  if (classes >= ranks) return {};
  return {Code::kInvalidArgument,
          format("model gpt: a vocabulary of %lld among %d ranks of tp (expected at least as many)",
                 static_cast<long long>(classes), ranks)};
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
  const std::int64_t width = options.width.value_or(kGptWidth);
  GW_TRY(check(options, input, width));
  GW_TRY(check_share(options, input.channels, classes));
  const EmbeddingShape table{classes, input.channels, width};
  const BlockOptions block{
      {input.channels, 1, width}, options.heads, options.dropout.value_or(0), options.share};
  Model<T> model(input);
  model.share_with(options.share.ranks);
  model.add("embed", embedding<T>(table, options.share));
  if (block.dropout > 0) {
    model.add("embed.dropout", std::make_unique<Dropout<T>>(block.here(), block.dropout,
                                                            "embed.dropout", block.share));
  }
  for (std::int64_t number = 1; number <= options.layers; ++number) {
    const std::string name = "block" + std::to_string(number);
    model.add(name + ".attention", attention<T>(block, name + ".attention"));
    model.add(name + ".mlp", mlp<T>(block, name + ".mlp"));
  }
  model.add("norm", std::make_unique<LayerNorm<T>>(block.here()));
  add_head(model, table, options.share, options.tied);
  const double deeper = 1 / std::sqrt(2.0 * static_cast<double>(options.layers));
  model.set_init([&](ParameterInfo& info) {
    // Norms, biases behind a sum, positions: of each rank's positions alone.
    info.summed = options.share.sequence && !info.box;
    const bool all = options.init == "gpt2";
    if (all || info.shape.rank == 2) set_init(info, "gpt2");
    if (all && ends_branch(info)) info.init.value *= deeper;
  });
  return model;
}

template Result<Model<float>> make_gpt<float>(const ModelOptions&, SampleShape, std::int64_t);
template Result<Model<double>> make_gpt<double>(const ModelOptions&, SampleShape, std::int64_t);

}  // namespace gradwire::families
