// The models by their numbers: parameters, arithmetic, names, how they start, what they refuse.
#include "trainer/models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/fails.h"
#include "trainer/model_costs.h"

namespace gradwire::models_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

std::int64_t params_of(const Model<float>& model) { return parameter_elems(model.parameters()); }

Model<float> model_of(const ModelOptions& options, SampleShape input, std::int64_t classes) {
  auto made = make_model<float>(options, input, classes);
  EXPECT_TRUE(made.has_value()) << made.error().message();
  return std::move(made).value();
}

TEST(Models, ParameterCounts) {
  // Character transformer: 65 + 64 positions of width 64; per block 2 norms, 3, 1, 4 and 4 squares
  // with biases; norm; head.
  EXPECT_EQ(params_of(model_of({"gpt"}, {64, 1, 1}, 65)), 112512);
  ModelOptions wide{"gpt", {}, 128};
  wide.layers = 4;
  EXPECT_EQ(params_of(model_of(wide, {64, 1, 1}, 65)), 818176);
  wide.tied = true;
  EXPECT_EQ(params_of(model_of(wide, {64, 1, 1}, 65)), 818176 - 65 * 128);
  // 9 * 3 * 16 + 32, then per block two convolutions 3x3 and two norms, two shortcuts, 650.
  EXPECT_EQ(params_of(model_of({"resnet8"}, {3, 32, 32}, 10)), 78042);
  EXPECT_EQ(params_of(model_of({"resnet20"}, {3, 32, 32}, 10)), 272474);
  EXPECT_EQ(params_of(model_of({"alexnet"}, {3, 224, 224}, 1000)), 60965224);
  EXPECT_EQ(params_of(model_of({"mlp", {128, 64}}, {1, 28, 28}, 10)), 109386);
  EXPECT_EQ(params_of(model_of({"logistic"}, {1, 28, 28}, 10)), 7850);
}

TEST(Models, CostsOfEveryLayer) {
  const Model<float> model = model_of({"mlp", {5}}, {1, 2, 3}, 4);
  const auto costs = model_costs(model, 8);
  ASSERT_EQ(costs.size(), 4u);  // flatten, fc1, relu1, fc2
  EXPECT_EQ(costs[1].name, "fc1");
  EXPECT_EQ(costs[1].macs.forward_macs, 30);
  EXPECT_EQ(costs[1].macs.input_macs, 30);
  EXPECT_EQ(costs[1].macs.weight_macs, 30);
  EXPECT_EQ(costs[1].parameters, 35);
  EXPECT_EQ(costs[1].saved_bytes, 8 * 6 * 4);
  EXPECT_EQ(costs[3].parameters, 24);
  const Model<float> gpt = model_of({"gpt"}, {64, 1, 1}, 65);
  const auto blocks = model_costs(gpt, 2);
  EXPECT_EQ(blocks[1].name, "block1.attention");
  // Per position 4 squares; per sample two products of 64 x 64 positions and the width.
  EXPECT_EQ(blocks[1].macs.forward_macs, 64 * 4 * 64 * 64 + 2 * 64 * 64 * 64);
  // The input, two numbers per position of the norm, its output, queries, keys and values, maximum
  // and logarithm per head and position, and what the heads say.
  EXPECT_EQ(blocks[1].saved_bytes, 2 * 64 * (64 + 2 + 64 + 192 + 2 * 4 + 64) * 4);
}

TEST(Models, WorkOnSmallAndLargeImages) {
  ModelOptions options{"alexnet", {}, 16};
  EXPECT_EQ(model_of(options, {3, 32, 32}, 10).output().elems(), 10);
  EXPECT_EQ(model_of(options, {1, 28, 28}, 10).output().elems(), 10);
  EXPECT_EQ(model_of(options, {3, 64, 64}, 10).output().elems(), 10);
  EXPECT_EQ(model_of({"resnet8"}, {1, 8, 8}, 10).output().elems(), 10);
}

TEST(Models, NamesOfParametersAndBuffers) {
  const Model<float> resnet = model_of({"resnet8"}, {3, 32, 32}, 10);
  std::vector<std::string> names;
  for (const ParameterInfo& info : resnet.parameters()) names.push_back(info.name);
  EXPECT_THAT(names, ::testing::IsSupersetOf({"conv1.weight", "bn1.bias", "block1.conv2.weight",
                                              "block2.shortcut.conv.weight", "fc.bias"}));
  std::vector<std::string> buffers;
  for (const ParameterInfo& info : resnet.buffers()) buffers.push_back(info.name);
  EXPECT_EQ(buffers.size(), 2u * 9);
  EXPECT_THAT(buffers,
              ::testing::IsSupersetOf({"bn1.running_mean", "block3.shortcut.bn.running_var"}));
  const Model<float> gpt = model_of({"gpt"}, {8, 1, 1}, 65);
  names.clear();
  for (const ParameterInfo& info : gpt.parameters()) names.push_back(info.name);
  EXPECT_THAT(names,
              ::testing::IsSupersetOf({"embed.token", "embed.position", "block2.attention.qkv.bias",
                                       "block1.mlp.fc.weight", "norm.weight", "head.weight"}));
}

// Mean and standard deviation of every parameter against its scheme's, within six deviations.
void expect_start(const ModelOptions& options, SampleShape input, const std::string& name,
                  double deviation) {
  const Model<float> model = model_of(options, input, 10);
  std::vector<float> values(static_cast<std::size_t>(params_of(model)));
  init_parameters<float>(model.parameters(), 5, values);
  for (const ParameterInfo& info : model.parameters()) {
    if (info.name != name) continue;
    double sum = 0;
    double squares = 0;
    const auto count = static_cast<double>(info.shape.elems());
    for (std::int64_t i = 0; i < info.shape.elems(); ++i) {
      const double value = values[static_cast<std::size_t>(info.offset + i)];
      sum += value;
      squares += value * value;
    }
    EXPECT_NEAR(sum / count, 0, 6 * deviation / std::sqrt(count) + 1e-12) << name;
    EXPECT_NEAR(std::sqrt(squares / count), deviation, 6 * deviation / std::sqrt(2 * count))
        << name;
    return;
  }
  FAIL() << "no parameter " << name;
}

TEST(Models, Initialisation) {
  ModelOptions mlp{"mlp", {100}};
  expect_start(mlp, {200, 1, 1}, "fc1.weight", 1 / std::sqrt(200.0 * 3));
  mlp.init = "xavier";
  expect_start(mlp, {200, 1, 1}, "fc1.weight", std::sqrt(2.0 / 300));
  expect_start(mlp, {200, 1, 1}, "fc1.bias", 0);
  mlp.init = "kaiming";
  expect_start(mlp, {200, 1, 1}, "fc1.weight", std::sqrt(2.0 / 200));
  mlp.init = "gpt2";
  expect_start(mlp, {200, 1, 1}, "fc1.weight", 0.02);
  ModelOptions cnn{"cnn"};
  cnn.init = "xavier";
  expect_start(cnn, {1, 8, 8}, "conv2.weight", std::sqrt(2.0 / (9 * 16 + 9 * 32)));
  expect_start({"resnet8"}, {3, 32, 32}, "block1.conv1.weight", std::sqrt(2.0 / (9 * 16)));
  expect_start({"resnet8"}, {3, 32, 32}, "fc.weight", 1 / std::sqrt(64.0 * 3));
  ModelOptions gpt{"gpt"};
  expect_start(gpt, {64, 1, 1}, "embed.position", 0.02);
  expect_start(gpt, {64, 1, 1}, "block1.attention.out.weight", 0.02);
  expect_start(gpt, {64, 1, 1}, "block1.attention.qkv.bias", 1 / std::sqrt(64.0 * 3));
  gpt.init = "gpt2";
  expect_start(gpt, {64, 1, 1}, "block1.attention.out.weight", 0.02 / std::sqrt(4.0));
  expect_start(gpt, {64, 1, 1}, "block1.attention.qkv.bias", 0);
}

TEST(Models, NormsStartAsIdentityUnderEveryScheme) {
  for (const char* scheme : {"", "uniform", "xavier", "kaiming", "gpt2"}) {
    ModelOptions options{"resnet8"};
    options.init = scheme;
    const Model<float> model = model_of(options, {3, 8, 8}, 10);
    std::vector<float> values(static_cast<std::size_t>(params_of(model)));
    init_parameters<float>(model.parameters(), 5, values);
    const ParameterInfo& weight = model.parameters()[1];
    const ParameterInfo& bias = model.parameters()[2];
    ASSERT_EQ(weight.name, "bn1.weight");
    EXPECT_EQ(values[static_cast<std::size_t>(weight.offset)], 1);
    EXPECT_EQ(values[static_cast<std::size_t>(bias.offset)], 0);
  }
}

TEST(Models, RefuseWhatTheyCannotBe) {
  const auto refusal = [](const ModelOptions& options, SampleShape input) {
    const auto made = make_model<float>(options, input, 10);
    return made.has_value() ? Status() : made.error();
  };
  ModelOptions gpt{"gpt"};
  EXPECT_THAT(refusal(gpt, {1, 28, 28}), fails(kInvalid, "gpt", "text"));
  gpt.heads = 5;
  EXPECT_THAT(refusal(gpt, {8, 1, 1}), fails(kInvalid, "width 64", "5 heads"));
  gpt.heads = 4;
  gpt.dropout = 1.0;
  EXPECT_THAT(refusal(gpt, {8, 1, 1}), fails(kInvalid, "dropout 1", "0"));
  EXPECT_THAT(refusal({"resnet20"}, {3, 2, 32}), fails(kInvalid, "2x32", "4x4"));
  EXPECT_THAT(refusal({"alexnet"}, {1, 8, 8}), fails(kInvalid, "8x8", "16x16"));
  EXPECT_THAT(refusal({"alexnet", {}, 0}, {1, 28, 28}), fails(kInvalid, "width 0", "1"));
  ModelOptions odd{"cnn"};
  odd.init = "orthogonal";
  EXPECT_THAT(refusal(odd, {1, 8, 8}), fails(kInvalid, "initialisation", "orthogonal"));
}

}  // namespace
}  // namespace gradwire::models_test
