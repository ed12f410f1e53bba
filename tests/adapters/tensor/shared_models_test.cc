// Models whose tensors ranks share, in double: values and gradients of the whole models, and what
// a pass sends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/adapters/tensor/tensor_ranks.h"
#include "tests/support/fails.h"
#include "trainer/accounts/training_memory.h"
#include "trainer/layer_walk.h"
#include "trainer/layers/parallel/output_loss.h"
#include "trainer/models.h"

namespace gradwire::testing::shared_models_test {
namespace {

struct Problem {
  ModelOptions options;
  SampleShape input;
  std::int64_t classes = 1;
  std::int64_t rows = 1;
};

Problem gpt_problem(std::int64_t layers, std::int64_t rows) {
  Problem problem{{"gpt"}, {8, 1, 1}, 13, rows};
  problem.options.width = 24;
  problem.options.layers = layers;
  problem.options.heads = 12;
  return problem;
}

template <typename T>
struct Pass {
  double loss = 0;
  std::vector<T> grads;  // of the parameters that are here, uses of tied ones added
  std::uint64_t forward_bytes = 0;
  std::uint64_t backward_bytes = 0;
  std::int64_t forward_exchanges = 0;
  std::int64_t backward_exchanges = 0;
  std::int64_t saved = 0;  // elements that are kept for the way back, of one sample
};

// One micro-batch there and back. `at`: null for a whole model.
template <typename T>
Pass<T> run_pass(const Problem& problem, const Model<T>& model, TensorRank* at) {
  const ParameterTable& table = model.parameters();
  std::vector<T> params(static_cast<std::size_t>(parameter_elems(table)));
  init_parameters<T>(table, 5, params);
  const GradientTable gradients = model.gradients();
  std::vector<T> all(static_cast<std::size_t>(gradients.elems()), T(777));
  Activations<T> activations = std::move(model.make_activations(problem.rows)).value();
  ModelPass<T> pass{params, problem.rows, &activations};
  pass.context = {PassMode::kTrain, 3, 1, 5};
  pass.peers = at == nullptr ? nullptr : &at->peers;
  const bool text = problem.options.name == "gpt";
  const std::int64_t labels_per_sample = text ? problem.input.channels : 1;
  std::vector<std::uint32_t> labels;
  const std::vector<double> noise = draws<double>(problem.rows * problem.input.elems(), 8);
  const std::span<T> x = activations.values(0, problem.rows);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = text ? static_cast<T>(i * 7 % static_cast<std::size_t>(problem.classes))
                : static_cast<T>(noise[i]);
  }
  for (std::int64_t i = 0; i < problem.rows * labels_per_sample; ++i) {
    labels.push_back(static_cast<std::uint32_t>(i * 5 % problem.classes));
  }
  Pass<T> seen;
  for (std::size_t layer = 0; layer < model.layers(); ++layer) {
    seen.saved += model.layer(layer).saved_elems(problem.rows) +
                  problem.rows * model.layer(layer).output().elems();
  }
  const auto counted = [&](std::uint64_t& bytes, std::int64_t& exchanges, const auto& work) {
    if (at == nullptr) return work();
    const std::int64_t before = at->peers.exchanges();
    bytes = at->bytes_of(work);
    exchanges = at->peers.exchanges() - before;
  };
  counted(seen.forward_bytes, seen.forward_exchanges, [&] { model.forward(pass); });
  OutputLoss<T> loss(model.loss(), model.class_share(), pass.peers,
                     static_cast<std::int64_t>(labels.size()));
  seen.loss = loss.mean(activations.values(model.last_level(), problem.rows), labels,
                        activations.deltas(model.last_level(), problem.rows));
  counted(seen.backward_bytes, seen.backward_exchanges,
          [&] { EXPECT_TRUE(model.backward(pass, all, [](int) { return Status(); }).ok()); });
  seen.grads.assign(all.begin(), all.begin() + parameter_elems(table));
  for (std::size_t use = 0; use < gradients.tied.size(); ++use) {
    const ParameterInfo& from = gradients.tensors[table.size() + use];
    const ParameterInfo& to = table[static_cast<std::size_t>(gradients.tied[use])];
    for (std::int64_t i = 0; i < from.shape.elems(); ++i) {
      seen.grads[static_cast<std::size_t>(to.offset + i)] +=
          all[static_cast<std::size_t>(from.offset + i)];
    }
  }
  for (const ParameterInfo& info : table) {
    if (!info.summed) continue;
    at->peers.start_sum(std::span(seen.grads)
                            .subspan(static_cast<std::size_t>(info.offset),
                                     static_cast<std::size_t>(info.shape.elems())));
    at->peers.await();
  }
  return seen;
}

template <typename T>
Model<T> shared(Problem problem, const TensorShare& share) {
  problem.options.share = share;
  return std::move(make_model<T>(problem.options, problem.input, problem.classes)).value();
}

void expect_as_whole(const Problem& problem, int ranks, bool sequence) {
  const Model<double> whole = shared<double>(problem, {});
  const Pass<double> alone = run_pass<double>(problem, whole, nullptr);
  std::vector<double> first(static_cast<std::size_t>(parameter_elems(whole.parameters())));
  init_parameters<double>(whole.parameters(), 5, first);
  on_tensor_ranks(ranks, [&](TensorRank& at) {
    const Model<double> part =
        shared<double>(problem, {.ranks = ranks, .rank = at.rank(), .sequence = sequence});
    std::vector<double> own(static_cast<std::size_t>(parameter_elems(part.parameters())));
    init_parameters<double>(part.parameters(), 5, own);
    EXPECT_EQ(own, cut_parameters(first, whole.parameters(), part.parameters()));
    const Pass<double> seen = run_pass<double>(problem, part, &at);
    EXPECT_NEAR(seen.loss, alone.loss, 1e-12);
    EXPECT_LE(
        distance(seen.grads, cut_parameters(alone.grads, whole.parameters(), part.parameters())),
        1e-12);
  });
}

TEST(SharedModels, GradientsAreTheWholeModels) {
  for (const bool tied : {false, true}) {
    Problem problem = gpt_problem(2, 3);
    problem.options.tied = tied;
    problem.options.dropout = 0.3;
    for (const int ranks : {2, 3, 4}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, tied " + std::to_string(tied));
      expect_as_whole(problem, ranks, false);
      if (ranks != 3) expect_as_whole(problem, ranks, true);
    }
  }
  const Problem mlp{{"mlp", {11, 6, 9}}, {10, 1, 1}, 7, 5};
  for (const int ranks : {2, 3}) expect_as_whole(mlp, ranks, false);
}

// The bytes of one sum over a layer's activations, b s h floats, from one rank.
std::uint64_t sum_bytes(const Problem& problem, int t) {
  const std::int64_t elems = problem.rows * problem.input.channels * *problem.options.width;
  return static_cast<std::uint64_t>(2 * (t - 1) * elems / t * 4);
}

// M13: a block has 2 sums forward and 2 back, the embedding one more forward, the head one back: of
// L blocks 4 L 2 (t - 1) / t b s h elements beside these. M14: twice the layers, or the batch, is
// twice as much. By sequence as many bytes, in gathers and reduce-scatters.
TEST(SharedModels, M13_M14_BytesOfALayer) {
  for (const int t : {2, 4}) {
    for (const auto& [layers, rows] : {std::pair{2, 2}, std::pair{4, 2}, std::pair{2, 4}}) {
      const Problem problem = gpt_problem(layers, rows);
      const std::uint64_t one = sum_bytes(problem, t);
      const TensorTraffic traffic = tensor_traffic({.layers = layers,
                                                    .width = *problem.options.width,
                                                    .sequence = problem.input.channels,
                                                    .batch = rows},
                                                   t);
      EXPECT_EQ(4 * traffic.blocks, static_cast<double>(4 * layers * one));
      EXPECT_EQ(4 * traffic.ends, static_cast<double>(2 * one));
      on_tensor_ranks(t, [&, layers = layers](TensorRank& at) {
        const auto count = static_cast<std::uint64_t>(2 * layers + 1);
        for (const bool sequence : {false, true}) {
          const TensorShare share{.ranks = t, .rank = at.rank(), .sequence = sequence};
          const Pass<float> pass = run_pass<float>(problem, shared<float>(problem, share), &at);
          // By sequence the embedding's sum is scattered, and gathered in front of the head; dy of
          // the embedding is gathered as dy of the head is scattered.
          EXPECT_EQ(pass.forward_bytes, count * one) << sequence;
          EXPECT_EQ(pass.backward_bytes, count * one) << sequence;
          EXPECT_EQ(static_cast<double>(pass.forward_bytes + pass.backward_bytes),
                    4 * (traffic.blocks + traffic.ends));
          EXPECT_EQ(pass.forward_exchanges, static_cast<std::int64_t>(count) * (sequence ? 2 : 1));
        }
      });
    }
  }
}

// Elements of a sample that blocks keep for the way back: what is between the shared layers once a
// rank, the gathered inputs and what is inside of these whole.
TEST(SharedModels, SequenceKeepsAPartOfTheStream) {
  constexpr int kRanks = 4;
  const auto kept = [](std::int64_t layers, bool sequence) {
    const Problem problem = gpt_problem(layers, 1);
    const TensorShare share{.ranks = kRanks, .rank = 0, .sequence = sequence};
    const Model<float> model = shared<float>(problem, share);
    std::int64_t elems = 0;
    for (std::size_t layer = 0; layer < model.layers(); ++layer) {
      elems += model.layer(layer).saved_elems(1) + model.layer(layer).output().elems();
    }
    return elems;
  };
  const std::int64_t s = 8;
  const std::int64_t h = 24;
  const auto lines = [](std::int64_t elems) { return (elems + 15) / 16 * 16; };
  // Of a block without sequence: outputs of both halves, 2 s h; norms' moments, 2 s each; norms'
  // outputs, s h each; then a rank's own: queries, keys and values 3 s h / t, the attention's
  // output s h / t and two numbers a row of scores; the mlp's inner 4 s h / t twice.
  const std::int64_t heads = 12 / kRanks;
  const std::int64_t attention = lines(2 * s) + lines(s * h) + lines(3 * s * h / kRanks) +
                                 lines(2 * heads * s) + lines(s * h / kRanks);
  const std::int64_t mlp = lines(2 * s) + lines(s * h) + 2 * lines(4 * s * h / kRanks);
  EXPECT_EQ(kept(3, false) - kept(2, false), attention + mlp + 2 * s * h);
  // With it: norms and outputs are s / t positions; each gathered input is kept beside them, s h.
  const std::int64_t own = s / kRanks;
  const std::int64_t less =
      2 * (lines(2 * s) - lines(2 * own)) + 2 * (lines(s * h) - lines(own * h)) + 2 * (s - own) * h;
  EXPECT_EQ(kept(3, true) - kept(2, true), attention + mlp + 2 * s * h - less + 2 * lines(s * h));
}

// Ranks have 7 and 6 of 13 tokens, and by sequence what enters the head is kept there.
TEST(SharedModels, AllRanksComputeTheSameLayersAgain) {
  const auto again = [](const Model<float>& model, LayerRange range) {
    std::vector<bool> layers;
    const auto segments = recompute_segments("selective", model, range);
    for (const Segment& segment : segments.value()) layers.push_back(segment.again);
    return layers;
  };
  Problem problem = gpt_problem(2, 1);
  problem.options.width = 12;
  for (const std::int64_t tokens : {2, 13, 1001}) {
    problem.classes = tokens;
    const Model<float> whole = shared<float>(problem, {});
    const std::vector<bool> chosen = again(whole, whole.all());
    for (const bool sequence : {false, true}) {
      for (int rank = 0; rank < 2; ++rank) {
        const Model<float> part =
            shared<float>(problem, {.ranks = 2, .rank = rank, .sequence = sequence});
        EXPECT_EQ(again(part, part.all()), chosen) << tokens << " " << rank << " " << sequence;
        const LayerRange last{2, part.layers()};
        const std::vector<LayerRange> ranges{last};
        const Model<float> stage = part.part(ranges);
        EXPECT_EQ(again(stage, stage.all()), again(whole, last)) << tokens << " " << rank;
      }
    }
  }
}

TEST(SharedModels, WhatDoesNotDivideIsNamed) {
  const auto refused = [](Problem problem, const TensorShare& share) {
    problem.options.share = share;
    return make_model<float>(problem.options, problem.input, problem.classes).error();
  };
  EXPECT_THAT(refused(gpt_problem(1, 1), {.ranks = 5}),
              fails(Code::kInvalidArgument, "12 heads", "5 ranks of tp"));
  EXPECT_THAT(refused(gpt_problem(1, 1), {.ranks = 3, .rank = 0, .sequence = true}),
              fails(Code::kInvalidArgument, "8 positions", "3 ranks of tp"));
  EXPECT_THAT(refused({{"mlp", {3}}, {10, 1, 1}, 7, 1}, {.ranks = 4}),
              fails(Code::kInvalidArgument, "3 outputs", "4 ranks of tp"));
  EXPECT_THAT(refused({{"cnn"}, {1, 8, 8}, 7, 1}, {.ranks = 2}),
              fails(Code::kUnsupported, "cnn", "2 ranks of tp"));
}

// A rank whose peers are gone ends with an error, and does not wait for ever.
TEST(SharedModels, ALostPeerEndsThePass) {
  CommunicatorOptions options;
  options.deadline_seconds = 2;
  const Problem problem = gpt_problem(1, 1);
  const auto statuses = on_ranks(
      2,
      [&](std::unique_ptr<Communicator>& group) -> Status {
        if (group->rank() == 1) return {};
        CommunicatorPeers peers(*group);
        const Model<float> part = shared<float>(problem, {.ranks = 2, .rank = 0});
        std::vector<float> params(static_cast<std::size_t>(parameter_elems(part.parameters())));
        Activations<float> activations = std::move(part.make_activations(1)).value();
        ModelPass<float> pass{params, 1, &activations};
        pass.peers = &peers;
        std::ranges::fill(activations.values(0, 1), 0.0F);
        part.forward(pass);
        return peers.status();
      },
      options);
  EXPECT_FALSE(statuses[0].ok());
  EXPECT_THAT(std::string(statuses[0].message()), ::testing::HasSubstr("tensor peers"));
}

}  // namespace
}  // namespace gradwire::testing::shared_models_test
