// Models for images whose samples, or tiles, ranks divide: values and gradients of the whole
// models, and what a step sends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tests/adapters/tensor/model_passes.h"
#include "tests/support/fails.h"

namespace gradwire::testing::image_models_test {
namespace {

TensorShare by_samples(int ranks, int rank) {
  return {.ranks = ranks, .rank = rank, .layout = TensorShare::Layout::kSamples};
}

TensorShare by_tiles(int rows, int columns, int rank) {
  return {.ranks = rows * columns,
          .rank = rank,
          .layout = TensorShare::Layout::kTiles,
          .tile_rows = rows,
          .tile_columns = columns};
}

Problem image_problem(const std::string& name, SampleShape input, std::int64_t rows,
                      std::int64_t width = 0) {
  Problem problem{{name}, input, 7, rows};
  if (width > 0) problem.options.width = width;
  return problem;
}

// Convolutions by samples; linear layers that 2, 3 and 4 ranks do not divide evenly; dropout of
// samples and of features.
TEST(ImageModels, M9_BySamplesAreTheWholeModels) {
  for (const int ranks : {2, 3, 4}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    for (const Problem& problem :
         {image_problem("cnn", {2, 8, 8}, 12), image_problem("resnet8", {3, 8, 8}, 12, 4),
          image_problem("alexnet", {1, 16, 16}, 12, 13)}) {
      SCOPED_TRACE(problem.options.name);
      expect_model_as_whole(problem, ranks, [&](int rank) { return by_samples(ranks, rank); });
    }
  }
}

TEST(ImageModels, M17_ByTilesAreTheWholeModels) {
  for (const auto& [rows, columns] : {std::pair{2, 2}, std::pair{1, 2}, std::pair{2, 1}}) {
    SCOPED_TRACE(format("%dx%d", rows, columns));
    std::vector<Problem> problems{image_problem("cnn", {2, 8, 8}, 3),
                                  image_problem("resnet8", {3, 8, 16}, 3, 4),
                                  image_problem("resnet20", {3, 8, 8}, 2, 2)};
    if (rows == 1) problems.push_back(image_problem("cnn", {2, 7, 8}, 3));
    for (const Problem& problem : problems) {
      SCOPED_TRACE(problem.options.name);
      expect_model_as_whole(problem, rows * columns, [&, rows = rows, columns = columns](int rank) {
        return by_tiles(rows, columns, rank);
      });
    }
  }
}

// What a model says of `rows` samples with its running statistics; a rank's classes, where they
// are divided.
std::vector<float> evaluated(const Problem& problem, const Model<float>& model, TensorRank* at,
                             std::int64_t rows) {
  std::vector<float> params(static_cast<std::size_t>(parameter_elems(model.parameters())));
  init_parameters<float>(model.parameters(), 5, params);
  std::vector<float> buffers(static_cast<std::size_t>(parameter_elems(model.buffers())));
  init_parameters<float>(model.buffers(), 5, buffers);
  Activations<float> activations = std::move(model.make_activations(problem.rows)).value();
  ModelPass<float> pass{params, rows, &activations};
  pass.buffers = buffers;
  pass.context.mode = PassMode::kEvaluate;
  pass.peers = at == nullptr ? nullptr : &at->peers;
  const auto x = draws<float>(rows * problem.input.elems(), 6);
  std::copy(x.begin(), x.end(), activations.values(0, rows).begin());
  const std::span<const float> said = model.forward(pass);
  return {said.begin(), said.end()};
}

// Any number of samples is evaluated, also fewer than ranks.
TEST(ImageModels, EvaluateAnyNumberOfSamples) {
  const Problem problem = image_problem("resnet8", {3, 8, 8}, 12, 4);
  const Model<float> whole = shared<float>(problem, {});
  for (std::int64_t rows = 1; rows <= problem.rows; ++rows) {
    const std::vector<float> alone = evaluated(problem, whole, nullptr, rows);
    on_tensor_ranks(4, [&](TensorRank& at) {
      const Model<float> part = shared<float>(problem, by_samples(4, at.rank()));
      EXPECT_LE(distance(evaluated(problem, part, &at, rows),
                         columns_of(alone, problem.classes, part.class_share()->here)),
                1e-5)
          << rows;
      const Model<float> tiled = shared<float>(problem, by_tiles(2, 2, at.rank()));
      EXPECT_LE(distance(evaluated(problem, tiled, &at, rows), alone), 1e-5) << rows;
    });
  }
}

// A micro-batch's room: images once, between the convolutions a rank's part of the samples.
TEST(ImageModels, KeepAPartOfTheActivations) {
  const Problem problem = image_problem("cnn", {3, 32, 32}, 16);
  const auto kept = [&](const TensorShare& share) {
    const Model<float> model = shared<float>(problem, share);
    return Activations<float>::elems(model.activation_sizes(problem.rows), problem.rows).own;
  };
  const std::int64_t image = 3 * 32 * 32;
  const std::int64_t between = 16 * 32 * 32 * 2 + 16 * 16 * 16 + 32 * 16 * 16 * 2 + 32 * 8 * 8;
  const std::int64_t features = 32 * 8 * 8;
  const std::int64_t alone = 16 * (image + between + features + 7);
  EXPECT_EQ(kept({}), alone);
  // The rank's images, and the features of all samples in front of the linear layer.
  EXPECT_EQ(kept(by_samples(4, 3)),
            16 * image + 4 * (image + between + features) + 16 * features + 16 * 2);
  // A tile of each image, with halos: of conv1 and conv2 a line of two neighbours and a corner.
  const std::int64_t halos = 16 * (3 * (2 * 16 + 1) + 16 * (2 * 8 + 1));
  EXPECT_EQ(kept(by_tiles(2, 2, 0)),
            16 * image + 4 * (image + between) + halos + 2 * 16 * features + 16 * 7);
}

// Of AlexNet, 256 samples on 2 ranks: the gradients of the convolutions are summed, the features in
// front of the linear layers gathered and their derivatives scattered, one sum forward, behind the
// rows of fc2, and one back, in front of the columns of fc3. Elements times p / (p - 1), a sum
// counting twice: 13.6 million, where data parallelism has twice all parameters, 121.9 million: 9
// times less. The linear layers and the sums run, for convolutions send nothing else.
TEST(ImageModels, M9_AlexnetSendsNineTimesLess) {
  constexpr int kRanks = 2;
  constexpr std::int64_t kBatch = 256;
  Problem problem{{"alexnet"}, {3, 224, 224}, 1000, kBatch};
  const std::int64_t all = parameter_elems(shared<float>(problem, {}).parameters());
  EXPECT_EQ(all, 60965224);
  on_tensor_ranks(kRanks, [&](TensorRank& at) {
    const Model<float> model = shared<float>(problem, by_samples(kRanks, at.rank()));
    LayerRange linear{0, model.layers()};
    while (model.layer_name(linear.begin) != "fc1.dropout") ++linear.begin;
    Activations<float> activations =
        std::move(Activations<float>::create(model.activation_sizes(linear, kBatch), kBatch))
            .value();
    std::vector<float> params(static_cast<std::size_t>(parameter_elems(model.parameters())), 0.01F);
    std::vector<float> grads(params.size());
    ModelPass<float> pass{params, kBatch, &activations};
    pass.peers = &at.peers;
    std::ranges::fill(activations.values(linear.begin, kBatch / kRanks), 1.0F);
    const auto elems = [&](const std::function<void()>& work) {
      return static_cast<std::int64_t>(at.bytes_of(work)) / 4 * kRanks / (kRanks - 1);
    };
    const std::int64_t forward = elems([&] { model.forward(pass, linear); });
    EXPECT_EQ(forward, kBatch * 9216 + 2 * kBatch * 4096);
    std::ranges::fill(activations.deltas(model.last_level(), kBatch), 1.0F);
    const std::int64_t backward = elems([&] {
      for (std::size_t layer = linear.end; layer-- > linear.begin;) {
        EXPECT_TRUE(model.backward(pass, layer, grads, [](int) { return Status(); }).ok());
      }
    });
    EXPECT_EQ(backward, kBatch * 9216 + 2 * kBatch * 4096);
    const std::int64_t sums = elems([&] {
      for (const ParameterInfo& info : model.parameters()) {
        if (!info.summed) continue;
        EXPECT_TRUE(info.name.starts_with("conv")) << info.name;
        at.peers.start_sum(std::span(grads).subspan(static_cast<std::size_t>(info.offset),
                                                    static_cast<std::size_t>(info.shape.elems())));
        at.peers.await();
      }
    });
    const double sent = static_cast<double>(forward + backward + sums);
    const double replicas = 2.0 * static_cast<double>(all);
    EXPECT_NEAR(sent, 13.6e6, 0.05e6);
    EXPECT_NEAR(replicas, 121.9e6, 0.05e6);
    EXPECT_NEAR(replicas / sent, 9.0, 0.05);
  });
}

TEST(ImageModels, WhatDoesNotDivideIsNamed) {
  const auto refused = [](Problem problem, const TensorShare& share) {
    problem.options.share = share;
    return make_model<float>(problem.options, problem.input, problem.classes).error();
  };
  constexpr Code kInvalid = Code::kInvalidArgument;
  EXPECT_THAT(refused(image_problem("cnn", {1, 8, 8}, 1), by_samples(9, 0)),
              fails(kInvalid, "cnn", "'fc'", "9 ranks of tp/hybrid", "7 outputs"));
  EXPECT_THAT(refused(image_problem("cnn", {1, 7, 8}, 1), by_tiles(2, 1, 0)),
              fails(kInvalid, "cnn", "tp/spatial[2x1]", "images of 7x8"));
  EXPECT_THAT(refused(image_problem("cnn", {1, 8, 8}, 1), by_tiles(1, 8, 0)),
              fails(kInvalid, "'pool1'", "tp/spatial[1x8]", "tiles of 8x1"));
  EXPECT_THAT(refused(image_problem("cnn", {1, 8, 8}, 1), by_tiles(4, 1, 0)),
              fails(kInvalid, "'pool2'", "tiles of 1x4"));
  EXPECT_THAT(refused(image_problem("resnet8", {3, 12, 12}, 1), by_tiles(2, 2, 0)),
              fails(kInvalid, "resnet8", "'block3.conv1'", "height of 6 values in 2 parts", "got 3",
                    "a multiple of the stride"));
  EXPECT_THAT(refused(image_problem("alexnet", {3, 224, 224}, 1), by_tiles(2, 2, 0)),
              fails(kInvalid, "alexnet", "'conv1'", "got 55", "expected 56"));
  EXPECT_THAT(refused(image_problem("alexnet", {3, 32, 32}, 1), by_tiles(1, 2, 0)),
              fails(kInvalid, "alexnet", "'conv1.pool'", "windows of 3 with stride 2"));
  // Tiles are smaller than a window, but the image is not.
  EXPECT_THAT(refused(image_problem("alexnet", {3, 16, 16}, 1), by_tiles(4, 4, 0)),
              fails(kInvalid, "alexnet", "'conv1.pool'", "tiles of 2x2"));
  for (const std::string name : {"mlp", "gpt", "logistic"}) {
    EXPECT_THAT(refused(image_problem(name, {8, 1, 1}, 1), by_samples(2, 0)),
                fails(Code::kUnsupported, name, "2 ranks of tp/hybrid", "cnn, resnet8"));
  }
  // No alexnet is among what is expected there: none can be divided.
  EXPECT_THAT(
      refused(image_problem("mlp", {1, 8, 8}, 1), by_tiles(1, 2, 0)),
      fails(Code::kUnsupported, "mlp", "tp/spatial (expected cnn, resnet8 or resnet20, or"));
  EXPECT_THAT(refused(image_problem("cnn", {1, 8, 8}, 1), TensorShare{.ranks = 2}),
              fails(Code::kUnsupported, "cnn", "2 ranks of tp",
                    "tp/hybrid for cnn, resnet8, resnet20 "
                    "and alexnet",
                    "tp/spatial[RxC] for the first three"));
  const Model<float> model = shared<float>(image_problem("cnn", {1, 8, 8}, 4), by_samples(3, 1));
  EXPECT_THAT(model.check_rows(4), fails(kInvalid, "'samples'", "4 samples", "3 ranks of tp"));
  EXPECT_TRUE(model.check_rows(6).ok());
}

TEST(ImageModels, SayThatTheyDivideData) {
  const Problem problem = image_problem("cnn", {1, 8, 8}, 4);
  EXPECT_FALSE(shared<float>(problem, {}).divides_data());
  for (const TensorShare& share : {by_samples(2, 1), by_tiles(2, 1, 0)}) {
    const Model<float> model = shared<float>(problem, share);
    EXPECT_TRUE(model.divides_data());
    const LayerRange range{0, 2};
    EXPECT_TRUE(model.part(std::span(&range, 1)).divides_data());
  }
  const Problem mlp{{"mlp"}, {8, 1, 1}, 7, 4};
  EXPECT_FALSE(shared<float>(mlp, TensorShare{.ranks = 2}).divides_data());
}

}  // namespace
}  // namespace gradwire::testing::image_models_test
