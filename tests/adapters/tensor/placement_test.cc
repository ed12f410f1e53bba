// Mistakes in how a model is shared, planted one by one: each is named, and most of them, where
// nobody checks, let the loss go down another way.
#include "trainer/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/adapters/tensor/tensor_ranks.h"
#include "tests/support/fails.h"
#include "trainer/layers/causal_attention.h"
#include "trainer/layers/chain.h"
#include "trainer/layers/dropout.h"
#include "trainer/layers/gelu.h"
#include "trainer/layers/layer_norm.h"
#include "trainer/layers/parallel/column_linear.h"
#include "trainer/layers/parallel/input_sum.h"
#include "trainer/layers/parallel/output_loss.h"
#include "trainer/layers/parallel/row_linear.h"
#include "trainer/layers/parallel/sequence_input.h"
#include "trainer/layers/parallel/sequence_row_linear.h"
#include "trainer/layers/parallel/vocabulary_embedding.h"
#include "trainer/layers/residual.h"
#include "trainer/model.h"
#include "trainer/model_share.h"
#include "trainer/models.h"

namespace gradwire::testing::placement_test {
namespace {

constexpr std::int64_t kPositions = 4;
constexpr std::int64_t kWidth = 8;
constexpr std::int64_t kInner = 16;
constexpr std::int64_t kTokens = 6;
constexpr LinearOptions kEach{true, kPositions};
const SampleShape kWhole{kPositions, 1, kWidth};

using L = std::unique_ptr<Layer<double>>;
using Branch = std::function<void(Chain<double>& chain, const TensorShare& share)>;

L column(const TensorShare& share, LinearOptions each = kEach) {
  return std::make_unique<ColumnLinear<double>>(kWidth, ColumnShare{kInner, share.part(kInner)},
                                                each);
}
L row(const TensorShare& share, RowLinear<double>::Sum sum = RowLinear<double>::Sum::kHere,
      LinearOptions each = kEach) {
  return std::make_unique<RowLinear<double>>(RowShare{kInner, share.part(kInner)}, kWidth, each,
                                             sum);
}
L gelu(const Chain<double>& chain) { return std::make_unique<Gelu<double>>(chain.output()); }
L summed(L layer) { return std::make_unique<InputSum<double>>(std::move(layer)); }
L gathered(L layer, const TensorShare& share) {
  return std::make_unique<SequenceInput<double>>(std::move(layer), kWhole, share);
}
SampleShape here(const TensorShare& share) { return {share.stream(kPositions).size(), 1, kWidth}; }

// As it should be.
void right_branch(Chain<double>& chain, const TensorShare& share) {
  chain.add("in", share.sequence ? gathered(column(share), share) : summed(column(share)));
  chain.add("gelu", gelu(chain));
  if (share.sequence) {
    chain.add("out", std::make_unique<SequenceRowLinear<double>>(
                         RowShare{kInner, share.part(kInner)}, kWidth, kEach, share));
  } else {
    chain.add("out", row(share));
  }
}

// What of a model is planted; the rest is as it should be.
struct Plant {
  Branch branch = right_branch;
  bool head_sums = true;    // the head's dx
  bool head_whole = false;  // all classes on every rank
  bool tells_classes = true;
  std::function<void(ParameterInfo&)> change = {};
  bool sequence = false;
};

// embed, norm, a branch with what flows around it, norm, head.
Model<double> planted(const Plant& plant, const TensorShare& share) {
  Model<double> model({kPositions, 1, 1});
  model.share_with(share.ranks);
  model.add("embed", std::make_unique<VocabularyEmbedding<double>>(
                         EmbeddingShape{kTokens, kPositions, kWidth}, share));
  model.add("norm", std::make_unique<LayerNorm<double>>(here(share)));
  auto chain = std::make_unique<Chain<double>>(here(share));
  plant.branch(*chain, share);
  model.add("block", std::make_unique<Residual<double>>(here(share), std::move(chain)));
  model.add("last", std::make_unique<LayerNorm<double>>(here(share)));
  const Range classes = share.part(kTokens);
  L head = plant.head_whole
               ? L(std::make_unique<Linear<double>>(kWidth, classes.size(),
                                                    LinearOptions{false, kPositions}))
               : std::make_unique<ColumnLinear<double>>(kWidth, ColumnShare{kTokens, classes},
                                                        LinearOptions{false, kPositions});
  if (share.sequence) {
    head = gathered(std::move(head), share);
  } else if (plant.head_sums && !plant.head_whole) {
    head = summed(std::move(head));
  }
  model.add("head", std::move(head));
  if (plant.tells_classes) model.divide_classes({classes, kTokens});
  model.set_init([&](ParameterInfo& info) {
    info.summed = share.sequence && !info.box;
    if (plant.change) plant.change(info);
  });
  return model;
}

TensorShare share_of(const Plant& plant, int rank) {
  return {.ranks = 2, .rank = rank, .sequence = plant.sequence};
}

Status check(const Plant& plant) { return planted(plant, share_of(plant, 0)).check_placement(); }

// Losses of a few steps of plain descent on rank 0.
std::vector<double> losses_of(const Plant& plant) {
  constexpr std::int64_t kRows = 3;
  std::vector<double> losses;
  on_tensor_ranks(2, [&](TensorRank& at) {
    const Model<double> model = planted(plant, share_of(plant, at.rank()));
    const ParameterTable& table = model.parameters();
    std::vector<double> params(static_cast<std::size_t>(parameter_elems(table)));
    init_parameters<double>(table, 5, params);
    std::vector<double> grads(params.size());
    Activations<double> activations = std::move(model.make_activations(kRows)).value();
    std::vector<std::uint32_t> labels;
    for (std::int64_t i = 0; i < kRows * kPositions; ++i) {
      labels.push_back(static_cast<std::uint32_t>(i % 3));
    }
    OutputLoss<double> loss(model.loss(), model.class_share(), &at.peers, kRows * kPositions);
    for (int step = 0; step < 4; ++step) {
      ModelPass<double> pass{params, kRows, &activations};
      pass.peers = &at.peers;
      const std::span<double> x = activations.values(0, kRows);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i * 5 % kTokens);
      model.forward(pass);
      const double mean = loss.mean(activations.values(model.last_level(), kRows), labels,
                                    activations.deltas(model.last_level(), kRows));
      if (at.rank() == 0) losses.push_back(mean);
      EXPECT_TRUE(model.backward(pass, grads, [](int) { return Status(); }).ok());
      for (const ParameterInfo& info : table) {
        if (!info.summed) continue;
        at.peers.start_sum(std::span(grads).subspan(static_cast<std::size_t>(info.offset),
                                                    static_cast<std::size_t>(info.shape.elems())));
        at.peers.await();
      }
      for (std::size_t i = 0; i < params.size(); ++i) params[i] -= 0.5 * grads[i];
    }
  });
  return losses;
}

struct Mistake {
  std::string what;
  Plant plant;
  std::vector<std::string> named;  // in the message
};

// Sums that are missing, or too many.
std::vector<Mistake> mistakes_of_sums() {
  using Chained = Chain<double>;
  using Share = const TensorShare&;
  const auto around = [](const std::function<L(Share)>& first) {
    return [first](Chained& chain, Share share) {
      chain.add("in", first(share));
      chain.add("gelu", gelu(chain));
      chain.add("out", row(share));
    };
  };
  return {
      {"missing f",
       {.branch = around([](Share s) { return column(s); })},
       {"layer 'block'", "'in'", "reads I", "expected R"}},
      {"f twice",
       {.branch = around([](Share s) { return summed(summed(column(s))); })},
       {"layer 'block'", "'in'", "reads R", "expected I"}},
      {"missing g",
       {.branch =
            [](Chained& chain, Share share) {
              chain.add("in", summed(column(share)));
              chain.add("gelu", gelu(chain));
              chain.add("out", row(share, RowLinear<double>::Sum::kElsewhere));
            }},
       {"layer 'block'", "branch gives P", "expected I"}},
  };
}

// Values that lie otherwise than what reads them takes them to.
std::vector<Mistake> mistakes_of_axes() {
  using Chained = Chain<double>;
  using Share = const TensorShare&;
  return {
      {"a norm of some features",
       {.branch =
            [](Chained& chain, Share share) {
              chain.add("in", summed(column(share)));
              chain.add("norm", std::make_unique<LayerNorm<double>>(chain.output()));
              chain.add("out", row(share));
            }},
       {"layer 'block'", "'norm'", "reads V by features", "expected I or V by positions"}},
      {"rows of a whole input",
       {.branch = [](Chained& chain, Share share) { chain.add("out", row(share)); }},
       {"layer 'block'", "'out'", "reads I", "expected V by features"}},
      {"columns behind columns",
       {.branch =
            [](Chained& chain, Share share) {
              chain.add("in", summed(column(share)));
              chain.add("more", column(share));
            }},
       {"layer 'block'", "'more'", "reads V by features", "expected R"}},
      {"a head without f", {.head_sums = false}, {"layer 'head'", "reads I", "expected R"}},
      {"a head that every rank has as a whole",
       {.head_whole = true},
       {"outputs are I", "expected V by features"}},
      {"classes that the loss does not know to be divided",
       {.tells_classes = false},
       {"outputs are V by features", "expected I"}},
      {"a gradient that all have alike, summed",
       {.change = [](ParameterInfo& info) { info.summed = info.name == "norm.weight"; }},
       {"layer 'norm'", "'norm.weight'", "is added up", "expected none"}},
  };
}

std::vector<Mistake> mistakes_by_sequence() {
  using Chained = Chain<double>;
  using Share = const TensorShare&;
  return {
      {"a gradient of some positions, not summed",
       {.change = [](ParameterInfo& info) { info.summed &= info.name != "last.weight"; },
        .sequence = true},
       {"layer 'last'", "'last.weight'", "not added up", "expected a sum"}},
      {"a bias of some positions, not summed",
       {.change = [](ParameterInfo& info) { info.summed &= !info.name.ends_with("out.bias"); },
        .sequence = true},
       {"layer 'block'", "'out'", "'block.out.bias'", "not added up"}},
      {"columns of some positions",
       {.branch =
            [](Chained& chain, Share share) {
              const LinearOptions each{true, here(share).channels};
              chain.add("in", column(share, each));
              chain.add("gelu", gelu(chain));
              chain.add("out", row(share, RowLinear<double>::Sum::kHere, each));
            },
        .sequence = true},
       {"layer 'block'", "'in'", "reads V by positions", "expected R"}},
      {"attention among some positions",
       {.branch =
            [](Chained& chain, Share share) {
              chain.add("heads",
                        std::make_unique<CausalAttention<double>>(here(share).channels, kWidth, 2));
            },
        .sequence = true},
       {"layer 'block'", "'heads'", "reads V by positions", "expected I or V by features"}},
      {"dropout that does not know its positions",
       {.branch =
            [](Chained& chain, Share share) {
              chain.add("dropout", std::make_unique<Dropout<double>>(here(share), 0.5, "d"));
            },
        .sequence = true},
       {"layer 'block'", "'dropout'", "reads V by positions", "expected I"}},
  };
}

std::vector<Mistake> mistakes() {
  std::vector<Mistake> all = mistakes_of_sums();
  for (const auto& more : {mistakes_of_axes(), mistakes_by_sequence()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

TEST(Placement, RightModelsPass) {
  EXPECT_TRUE(check({}).ok()) << check({}).message();
  EXPECT_TRUE(check({.sequence = true}).ok()) << check({.sequence = true}).message();
}

TEST(Placement, EveryMistakeIsNamed) {
  for (const Mistake& mistake : mistakes()) {
    SCOPED_TRACE(mistake.what);
    const Status seen = check(mistake.plant);
    EXPECT_EQ(seen.code(), Code::kInvalidArgument);
    for (const std::string& name : mistake.named) {
      EXPECT_THAT(std::string(seen.message()), ::testing::HasSubstr(name));
    }
  }
}

// None of them stops a run.
TEST(Placement, MostMistakesChangeALossSilently) {
  const std::vector<double> right = losses_of({});
  const std::vector<double> by_sequence = losses_of({.sequence = true});
  for (std::size_t step = 0; step < right.size(); ++step) {
    EXPECT_NEAR(by_sequence[step], right[step], 1e-12);
  }
  int silent = 0;
  for (const Mistake& mistake : mistakes()) {
    // Its shapes fit nobody's, which a run would not survive.
    if (mistake.what.starts_with("attention")) continue;
    const std::vector<double> losses = losses_of(mistake.plant);
    ASSERT_EQ(losses.size(), right.size()) << mistake.what;
    if (std::abs(losses.back() - right.back()) > 1e-6) ++silent;
  }
  EXPECT_GE(silent, 8);
}

// Parts that leave a row out, or have it twice, are named where a run begins.
TEST(Placement, PartsThatDoNotMakeAWholeAreNamed) {
  const auto table_of = [](int rank, Range tokens) {
    ParameterTable table =
        VocabularyEmbedding<double>({kTokens, kPositions, kWidth}, {.ranks = 2, .rank = rank})
            .parameters();
    table[0].box = TensorBox::of(Shape::matrix(kTokens, kWidth)).cut(0, tokens);
    table[0].shape = Shape::matrix(tokens.size(), kWidth);
    return table;
  };
  const ParameterTable whole = Embedding<double>({kTokens, kPositions, kWidth}).parameters();
  for (const Range second : {Range{2, 6}, Range{4, 6}}) {
    const std::vector<ParameterTable> held{table_of(0, {0, 3}), table_of(1, second)};
    EXPECT_THAT(check_share(share_of_tables(whole, held, 0), held[0]),
                fails(Code::kInvalidArgument, "token"));
  }
  const std::vector<ParameterTable> good{table_of(0, {0, 3}), table_of(1, {3, 6})};
  EXPECT_TRUE(check_share(share_of_tables(whole, good, 1), good[1]).ok());
}

}  // namespace
}  // namespace gradwire::testing::placement_test
