// Models whose tensors ranks share, in double: values and gradients of the whole models, and what
// a pass sends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/adapters/tensor/model_passes.h"
#include "tests/support/fails.h"
#include "trainer/accounts/training_memory.h"
#include "trainer/layer_walk.h"

namespace gradwire::testing::shared_models_test {
namespace {

Problem gpt_problem(std::int64_t layers, std::int64_t rows) {
  Problem problem{{"gpt"}, {8, 1, 1}, 13, rows};
  problem.options.width = 24;
  problem.options.layers = layers;
  problem.options.heads = 12;
  return problem;
}

void expect_as_whole(const Problem& problem, int ranks, bool sequence) {
  expect_model_as_whole(problem, ranks, [&](int rank) -> TensorShare {
    return {.ranks = ranks, .rank = rank, .sequence = sequence};
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

// A rank whose peers are gone ends with an error, within its deadline.
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
