#include "trainer/accounts/model_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "trainer/model_costs.h"
#include "trainer/models.h"

namespace gradwire::model_products_test {
namespace {

Model<float> made(const ModelOptions& options, SampleShape input, std::int64_t classes) {
  auto model = make_model<float>(options, input, classes);
  EXPECT_TRUE(model.has_value()) << model.error().message();
  return std::move(model).value();
}

double percent(std::int64_t part, std::int64_t whole) {
  return 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

// Convolutions are most of AlexNet's work and next to none of its parameters; linear layers the
// reverse.
TEST(ModelProducts, M8_AlexnetSplitsWorkFromParameters) {
  const Model<float> model = made({"alexnet"}, {3, 224, 224}, 1000);
  const auto work = work_by_kind(model_products(model));
  ASSERT_EQ(work.size(), 2U);
  EXPECT_EQ(work[0].kind, ProductKind::kConvolution);
  EXPECT_EQ(work[1].kind, ProductKind::kLinear);
  EXPECT_EQ(work[0].forward_macs, 665784864);
  EXPECT_EQ(work[1].forward_macs, 58621952);
  const std::int64_t macs = work[0].forward_macs + work[1].forward_macs;
  const std::int64_t params = parameter_elems(model.parameters());
  EXPECT_EQ(work[0].parameters + work[1].parameters, params);
  EXPECT_NEAR(percent(work[0].forward_macs, macs), 91.9, 0.05);
  EXPECT_NEAR(percent(work[0].parameters, params), 3.8, 0.05);
  EXPECT_NEAR(percent(work[1].forward_macs, macs), 8.1, 0.05);
  EXPECT_NEAR(percent(work[1].parameters, params), 96.2, 0.05);
  // Activations are the convolutions' too.
  EXPECT_GT(work[0].outputs, 50 * work[1].outputs);
}

// Every product of a model is found, whatever it stands in: their work is the model's.
TEST(ModelProducts, AddUpToTheModel) {
  ModelOptions gpt{"gpt"};
  ModelOptions tied = gpt;
  tied.tied = true;
  const std::vector<std::pair<ModelOptions, SampleShape>> all{{{"mlp", {5}}, {1, 2, 3}},
                                                              {{"resnet8"}, {3, 16, 16}},
                                                              {{"cnn"}, {1, 8, 8}},
                                                              {gpt, {16, 1, 1}},
                                                              {tied, {16, 1, 1}}};
  for (const auto& [options, input] : all) {
    SCOPED_TRACE(options.name);
    const Model<float> model = made(options, input, 10);
    std::int64_t macs = 0;
    for (const LayerAccount& account : model_costs(model, 1)) macs += account.macs.forward_macs;
    std::int64_t found = 0;
    std::int64_t weights = 0;
    for (const ModelProduct& product : model_products(model)) {
      found += product.forward_macs;
      weights += product.size.weights;
    }
    EXPECT_EQ(found, macs);
    std::int64_t matrices = 0;
    for (const ParameterInfo& info : model.parameters()) {
      const bool looked_up =
          info.name == "embed.position" || (info.name == "embed.token" && !options.tied);
      matrices += info.shape.rank > 1 && !looked_up ? info.shape.elems() : 0;
    }
    EXPECT_EQ(weights, matrices);
  }
}

TEST(ModelProducts, OfATransformerByName) {
  ModelOptions options{"gpt"};
  options.tied = true;
  options.layers = 1;
  std::map<std::string, ModelProduct> found;
  for (const ModelProduct& product : model_products(made(options, {16, 1, 1}, 10))) {
    found[product.name] = product;
  }
  ASSERT_EQ(found.size(), 6U);
  EXPECT_EQ(found["block1.attention.qkv"].size.weights, 3 * 64 * 64);
  EXPECT_EQ(found["block1.attention.qkv"].size.inputs, 16 * 64);
  EXPECT_EQ(found["block1.attention.heads"].kind, ProductKind::kAttention);
  EXPECT_EQ(found["block1.attention.out"].size.outputs, 16 * 64);
  EXPECT_EQ(found["block1.mlp.fc"].size.outputs, 16 * 4 * 64);
  EXPECT_EQ(found["block1.mlp.out"].size.inputs, 16 * 4 * 64);
  EXPECT_EQ(found["head"].size.weights, 10 * 64);
  EXPECT_EQ(found["head"].parameters, 0);
}

// Shortcuts of residual blocks are products of the block's input.
TEST(ModelProducts, OfAShortcut) {
  std::vector<std::string> shortcuts;
  for (const ModelProduct& product : model_products(made({"resnet8"}, {3, 16, 16}, 10))) {
    if (product.name.find("shortcut") == std::string::npos) continue;
    shortcuts.push_back(product.name);
    EXPECT_EQ(product.kind, ProductKind::kConvolution);
    EXPECT_EQ(product.size.inputs, 2 * product.size.outputs) << product.name;
  }
  EXPECT_EQ(shortcuts.size(), 2U);
}

// Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014: with 256
// images convolutions average gradients, and linear layers are divided. A data-parallel step sends
// 2 x 60,965,224 elements.
TEST(ModelProducts, DividedLinearLayersOfAlexnetSendLess) {
  const Model<float> model = made({"alexnet"}, {3, 224, 224}, 1000);
  for (const ModelProduct& product : model_products(model)) {
    EXPECT_EQ(least_traffic(product.size, 256) == LayerDivision::kDataParallel,
              product.kind == ProductKind::kConvolution)
        << product.name;
  }
  const ModelTraffic traffic = model_traffic(model, 256);
  EXPECT_EQ(traffic.data_parallel, 2 * 60965224);
  const std::int64_t convolutions = 2 * work_by_kind(model_products(model))[0].parameters;
  EXPECT_EQ(traffic.least, convolutions + 2 * 256 * (4096 + 4096 + 1000));
}

// An embedding that the head is tied to is divided with it, and what is looked up there summed.
TEST(ModelProducts, ATiedEmbeddingIsDividedWithItsHead) {
  ModelOptions options{"gpt"};
  options.tied = true;
  options.layers = 0;
  const Model<float> model = made(options, {4, 1, 1}, 1000);
  const std::int64_t others = 4 * 64 + 2 * 64;  // positions, a norm
  const ModelTraffic traffic = model_traffic(model, 2);
  EXPECT_EQ(traffic.data_parallel, 2 * (1000 * 64 + others));
  EXPECT_EQ(traffic.least, 2 * others + 2 * 2 * 4 * 64 + 2 * 2 * 4 * 64);
}

}  // namespace
}  // namespace gradwire::model_products_test
